// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

const (
	repaintInterval = 250 * time.Millisecond
	// readTimeout bounds one read of the management cluster.
	readTimeout = 10 * time.Second
)

// show shows clusters and their machines until the context ends: repainted in a terminal, else a line for each change.
// A cluster begins to be shown when it is there.
func show(ctx context.Context, out *screen, c client.Client, names ...client.ObjectKey) {
	shown := make([]*shownCluster, 0, len(names))
	for _, name := range names {
		shown = append(shown, &shownCluster{roster: newRoster(c, name), printed: map[string]string{}})
	}
	tick := time.NewTicker(repaintInterval)
	defer tick.Stop()
	for {
		var lines []line
		for _, cluster := range shown {
			reading, cancel := context.WithTimeout(ctx, readTimeout)
			title, rows, err := cluster.read(reading)
			cancel()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil || title == "":
			case out.terminal:
				lines = append(lines, frame(title, cluster.elapsed(), rows)...)
			default:
				printChanges(out, cluster.printed, title, rows, cluster.elapsed())
			}
		}
		out.paint(lines)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// shownCluster is a cluster with what was shown of it.
type shownCluster struct {
	*roster
	printed        map[string]string
	started, ended time.Time
}

// read returns a title and a row for each machine. Without a title there is no such cluster yet.
func (s *shownCluster) read(ctx context.Context) (title string, rows []row, err error) {
	cluster := &clusterv1.Cluster{}
	err = s.client.Get(ctx, s.cluster, cluster)
	switch {
	case apierrors.IsNotFound(err) && s.started.IsZero():
		return "", nil, nil
	case apierrors.IsNotFound(err):
		if s.ended.IsZero() {
			s.ended = time.Now()
		}
		return fmt.Sprintf("Cluster %s is gone", s.cluster.Name), nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("reading the cluster: %w", err)
	}
	if s.started.IsZero() {
		s.started = time.Now()
	}
	if rows, err = s.roster.read(ctx, time.Now()); err != nil {
		return "", nil, err
	}
	infra := &infrav1.MaasCluster{}
	if err := s.client.Get(ctx, s.cluster, infra); client.IgnoreNotFound(err) != nil {
		return "", nil, fmt.Errorf("reading the MaasCluster: %w", err)
	}
	return headline(cluster, infra, rows), rows, nil
}

// elapsed is the time since the cluster was seen first, until it was gone.
func (s *shownCluster) elapsed() time.Duration {
	if !s.ended.IsZero() {
		return s.ended.Sub(s.started)
	}
	return time.Since(s.started)
}

// headline describes the state of the whole cluster.
func headline(cluster *clusterv1.Cluster, infra *infrav1.MaasCluster, rows []row) string {
	state := "not available yet"
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		state = "being deleted"
	case conditions.IsTrue(cluster, clusterv1.ClusterAvailableCondition):
		state = "available"
	}
	running := 0
	for _, one := range rows {
		if one.phase == phaseRunning {
			running++
		}
	}
	line := fmt.Sprintf("Cluster %s is %s, %d of %d machines run", cluster.Name, state, running, len(rows))
	if ready := conditions.Get(infra, infrav1.LXDReadyCondition); ready != nil && cluster.DeletionTimestamp.IsZero() {
		if ready.Status == metav1.ConditionTrue {
			return line + ", all nodes are LXD hosts"
		}
		return line + ", " + ready.Message
	}
	return line
}

var phaseStyles = map[string]style{
	phaseRunning: green, phaseWaiting: dim, phaseDeleting: red,
}

func frame(title string, elapsed time.Duration, rows []row) []line {
	lines := []line{{}, {{title, bold}, {"  " + clockTime(elapsed), dim}}, {}}
	cells := []line{{
		{"MACHINE", dim}, {"ROLE", dim}, {"HOST", dim}, {"PHASE", dim}, {"TIME", dim}, {"ADDRESS", dim}, {"ZONE", dim}, {"", plain},
	}}
	for _, one := range rows {
		how, special := phaseStyles[one.phase]
		if !special {
			how = yellow
		}
		cells = append(cells, line{
			{one.name, plain}, {one.role, plain}, {cmp.Or(one.host, "-"), plain}, {one.phase, how}, {clockTime(one.took), plain},
			{cmp.Or(one.address, "-"), plain}, {cmp.Or(one.zone, "-"), plain}, {one.message, dim},
		})
	}
	return append(lines, table(cells)...)
}

// printChanges prints the machines whose row has changed since it was printed last.
func printChanges(out *screen, printed map[string]string, title string, rows []row, elapsed time.Duration) {
	var lines []string
	add := func(key, news string) {
		if printed[key] != news {
			printed[key] = news
			lines = append(lines, clockTime(elapsed)+"  "+news)
		}
	}
	there := map[string]bool{"": true}
	for _, one := range rows {
		there[one.name] = true
		where := strings.Join(strings.Fields(one.zone+" "+one.host+" "+one.address), " ")
		add(one.name, strings.TrimRight(fmt.Sprintf("%-28s %-13s %-10s %s  %s", one.name, one.role, one.phase, where, one.message), " "))
	}
	for name := range printed {
		if !there[name] {
			delete(printed, name)
			lines = append(lines, clockTime(elapsed)+"  "+fmt.Sprintf("%-28s gone", name))
		}
	}
	add("", title)
	if len(lines) > 0 {
		out.print(lines...)
	}
}

// clockTime is a duration as minutes and seconds.
func clockTime(d time.Duration) string {
	seconds := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	repaintInterval = 250 * time.Millisecond
	// lookTimeout bounds one look at the management cluster.
	lookTimeout = 10 * time.Second
)

// show shows the machines of a cluster until the context ends: repainted in a terminal, else a line for each change.
func show(ctx context.Context, out *screen, c client.Client, cluster client.ObjectKey) {
	started := time.Now()
	followed := newRoster(c, cluster)
	told := map[string]string{}
	tick := time.NewTicker(repaintInterval)
	defer tick.Stop()
	for {
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		rows, err := followed.look(looking, time.Now())
		title := headline(looking, c, cluster, rows)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil && out.terminal {
			out.paint(frame(title, time.Since(started), rows))
		} else if err == nil {
			tellChanges(out, told, title, rows, time.Since(started))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// headline says how the cluster as a whole is.
func headline(ctx context.Context, c client.Reader, name client.ObjectKey, rows []row) string {
	cluster := &clusterv1.Cluster{}
	err := c.Get(ctx, name, cluster)
	state := "not available yet"
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("Cluster %s is gone", name.Name)
	case err != nil:
		return err.Error()
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
	return fmt.Sprintf("Cluster %s is %s, %d of %d machines run", name.Name, state, running, len(rows))
}

var phaseStyles = map[string]style{
	phaseRunning: green, phaseWaiting: dim, phaseDeleting: red,
}

func frame(title string, elapsed time.Duration, rows []row) []line {
	lines := []line{{}, {{title, bold}, {"  " + clockTime(elapsed), dim}}, {}}
	cells := []line{{
		{"MACHINE", dim}, {"ROLE", dim}, {"ZONE", dim}, {"HOST", dim}, {"ADDRESS", dim}, {"PHASE", dim}, {"TIME", dim}, {"", plain},
	}}
	for _, one := range rows {
		how, special := phaseStyles[one.phase]
		if !special {
			how = yellow
		}
		cells = append(cells, line{
			{one.name, plain}, {one.role, plain}, {cmp.Or(one.zone, "-"), plain}, {cmp.Or(one.host, "-"), plain},
			{cmp.Or(one.address, "-"), plain}, {one.phase, how}, {clockTime(one.took), plain}, {one.message, dim},
		})
	}
	return append(lines, table(cells)...)
}

// tellChanges prints the machines that are not as they were told last.
func tellChanges(out *screen, told map[string]string, title string, rows []row, elapsed time.Duration) {
	var lines []string
	add := func(key, news string) {
		if told[key] != news {
			told[key] = news
			lines = append(lines, clockTime(elapsed)+"  "+news)
		}
	}
	there := map[string]bool{"": true}
	for _, one := range rows {
		there[one.name] = true
		where := strings.Join(strings.Fields(one.zone+" "+one.host+" "+one.address), " ")
		add(one.name, strings.TrimRight(fmt.Sprintf("%-28s %-13s %-10s %s  %s", one.name, one.role, one.phase, where, one.message), " "))
	}
	for name := range told {
		if !there[name] {
			delete(told, name)
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

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// reloadTimeout bounds building the manager and upgrading the chart.
const reloadTimeout = 10 * time.Minute

// develop starts a sandbox for developers of the provider. At each line of input the manager and the chart are updated
// to the present sources, until the context or the input ends.
func develop(ctx context.Context, out *screen, opts options) (err error) {
	steps := &steps{out: out}
	settings := opts.settings(steps, sandbox.Everything)
	settings.LXD = sandbox.LXDOff
	box, err := sandbox.Start(ctx, settings)
	steps.end()
	if err != nil {
		return interruptedOr(ctx, fmt.Errorf("starting the sandbox: %w", err))
	}
	defer func() {
		if stopped := box.Stop(); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stopping the sandbox: %w", stopped))
		}
	}()
	sample, err := prepare(ctx, box)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	if err := writeEnv(box); err != nil {
		return err
	}
	out.print(hints(box, sample)...)
	lines := linesOf(os.Stdin)
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, more := <-lines:
			if !more {
				return nil
			}
			reload(ctx, out, box.Manager)
		}
	}
}

// reloader is the manager.
type reloader interface {
	Reload(ctx context.Context) error
}

// reload reports what became of it. That something can't be built is no end: it is mended, and tried again.
func reload(ctx context.Context, out *screen, manager reloader) {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	out.print("Building the manager")
	began := time.Now()
	if err := manager.Reload(ctx); err != nil {
		out.print(err.Error())
		return
	}
	out.print("The manager runs anew, with the chart as it is now, after " + clockTime(time.Since(began)))
}

// linesOf is a value for each line, until the input ends.
func linesOf(input io.Reader) <-chan struct{} {
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(input); scanner.Scan(); {
			lines <- struct{}{}
		}
	}()
	return lines
}

// prepare makes the ClusterClass, and writes a cluster to try; it returns the path of that.
func prepare(ctx context.Context, box *sandbox.Sandbox) (sample string, err error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if err := box.ApplyFile(ctx, clusterClass); err != nil {
		return "", fmt.Errorf("creating the ClusterClass: %w", err)
	}
	manifest, err := box.Flavor(clusterFlavor, variables(clusterName, 1, 1))
	if err != nil {
		return "", err
	}
	sample = filepath.Join(box.WorkDir(), "cluster.yaml")
	if err := os.WriteFile(sample, []byte(manifest), 0o600); err != nil {
		return "", fmt.Errorf("writing a cluster to try: %w", err)
	}
	return sample, nil
}

// hints returns what can be done.
func hints(box *sandbox.Sandbox, sample string) []string {
	return []string{
		"",
		"The provider is installed, and a simulated MAAS is up. In another terminal, in this directory:",
		"",
		visitHint,
		"  kubectl apply -f " + sample,
		"  clusterctl describe cluster " + clusterName.Name,
		"",
		"MAAS is at $MAAS_ENDPOINT, with the API key $MAAS_API_KEY",
		"Logs are in " + box.LogDir,
		"",
		"Enter builds the manager anew, upgrades the chart, and starts the manager again. Ctrl-C stops everything.",
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// The sandbox's region, for users who create clusters by hand.
var (
	offeredDomain  = "maas.sim"
	offeredSubnet  = "10.77.0.0/24"
	offeredImages  = []string{"u-2204-k8s-1.35", "u-2204-k8s-1.36"}
	offeredZones   = []string{"zone-a", "zone-b", "zone-c"}
	uploadedPrefix = "custom/"
)

// watchInterval is how often the sandbox's processes are checked.
const watchInterval = time.Second

// lend starts an empty sandbox, prints how to use it, and leaves it to the user until the context ends.
func lend(ctx context.Context, out *screen, opts options) (err error) {
	steps := &steps{out: out}
	box, err := sandbox.Start(ctx, opts.settings(steps, sandbox.MAAS))
	if err != nil {
		steps.end()
		return interruptedOr(ctx, fmt.Errorf("starting the sandbox: %w", err))
	}
	defer func() {
		if ctx.Err() != nil {
			out.print("", "Stopping")
		}
		if opts.keep {
			out.print("Logs are in " + box.LogDir)
		}
		if stopped := box.Stop(); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stopping the sandbox: %w", stopped))
		}
	}()
	steps.begin("Building the manager")
	_, err = box.RunPods(ctx, sandbox.Namespace)
	steps.end()
	if err != nil {
		return interruptedOr(ctx, fmt.Errorf("running the pods of namespace %s: %w", sandbox.Namespace, err))
	}
	values, err := writeValues(box)
	if err != nil {
		return err
	}
	if err := writeEnv(box); err != nil {
		return err
	}
	out.print(directions(box, values)...)
	return await(ctx, box)
}

// writeValues writes the values that the chart needs here, and returns the path of the file.
func writeValues(box *sandbox.Sandbox) (string, error) {
	data, err := yaml.Marshal(box.Values())
	if err != nil {
		return "", fmt.Errorf("writing the values of the chart: %w", err)
	}
	path := filepath.Join(box.WorkDir(), "values.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("writing the values of the chart: %w", err)
	}
	return path, nil
}

// directions returns how to install the chart, and what this MAAS has.
func directions(box *sandbox.Sandbox, values string) []string {
	return []string{
		"",
		"Cluster API and a simulated MAAS are up. In another terminal, in this directory:",
		"",
		visitHint,
		"  helm install " + sandbox.Release + " charts/capmaas --namespace " + sandbox.Namespace + " \\",
		"    --values " + values,
		"",
		"Then go on as in docs/quick-start.md, with what this MAAS has:",
		"  domain " + offeredDomain + ", resource pool " + resourcePool + ", subnet " + offeredSubnet,
		"  images " + uploadedPrefix + strings.Join(offeredImages, ", "+uploadedPrefix),
		"  zones " + strings.Join(offeredZones, ", "),
		"MAAS is at $MAAS_ENDPOINT, with the API key $MAAS_API_KEY; one of its servers fails:",
		breakHint,
		"Logs, also what helm test prints, are in " + box.LogDir,
		"",
		"Ctrl-C stops everything.",
	}
}

const (
	visitHint = `  eval "$(bin/demo env)"`
	breakHint = "  bin/demo break metal-a1      # and: bin/demo mend metal-a1"
)

// absolute returns the directory that a variable names, for a PATH.
func absolute(variable string) string {
	path, err := filepath.Abs(os.Getenv(variable))
	if err != nil {
		return os.Getenv(variable)
	}
	return path
}

// await returns when the context ends, or something that should run has ended.
func await(ctx context.Context, box *sandbox.Sandbox) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := box.Err(); err != nil {
				return err
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package clusterctl_test follows the provider's document with the real clusterctl, in two management clusters that
// share one MAAS: west, where Helm installs the provider, and east, where clusterctl does.
package clusterctl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	repositoryRoot = "../.."
	page           = repositoryRoot + "/docs/clusterctl.md"
	startTimeout   = 15 * time.Minute
	// eastUser is the administrator in MAAS that the manager in the east is; that in the west is another one.
	eastUser = "east"
)

// west and east are the management clusters.
var west, east *sandbox.Sandbox

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	region, err := sandbox.RegionWithAdministrators(eastUser)
	if err != nil {
		return 0, err
	}
	options := sandbox.Options{
		Region: region, TimeScale: 300, LXD: sandbox.LXDOff, PollActive: 500 * time.Millisecond, PollIdle: 2 * time.Second,
		NoDeprecated: true,
	}
	if west, err = sandbox.Start(ctx, options); err != nil {
		return 0, fmt.Errorf("starting the sandbox in the west: %w", err)
	}
	defer func() { err = errors.Join(err, west.Stop()) }()
	options.Parts = sandbox.MAAS
	if east, err = west.Join(ctx, options); err != nil {
		return 0, fmt.Errorf("starting the sandbox in the east: %w", err)
	}
	defer func() { err = errors.Join(err, east.Stop()) }()
	return m.Run(), nil
}

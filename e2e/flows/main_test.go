// SPDX-License-Identifier: Apache-2.0

// Package flows_test runs whole clusters through their lives in one sandbox: they come up in the simulated MAAS, change,
// and go, and MAAS is as it was before.
package flows_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
)

// box is the sandbox that all tests share. They run one after the other, for they compare all of MAAS.
var box *sandbox.Sandbox

const (
	namespace = "default"
	dnsDomain = "maas.sim"
	// kubernetesVersion is that of the images of the sandbox's region.
	kubernetesVersion = "v1.35.0"
	image             = "u-2204-k8s-1.35"
	newImage          = "u-2404-k8s-1.35"
	// pool has all machines and VM hosts of the region.
	pool = "capi"

	startTimeout = 5 * time.Minute
)

func TestMain(m *testing.M) {
	code, err := runInSandbox(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runInSandbox(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	box, err = sandbox.Start(ctx, sandbox.Options{
		// Nothing here is about how long MAAS takes.
		TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
	})
	if err != nil {
		return 0, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, box.Stop()) }()
	if err := box.ApplyFile(ctx, "clusterclass/clusterclass-capmaas.yaml"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// startTimeout is enough to prepare the disks of real nodes on two processors that others use, too.
const startTimeout = 15 * time.Minute

// Main runs the tests of a package in one sandbox, which started holds while they run, and returns the exit code for
// TestMain. They fail if a manager that nobody killed ended; mayFall are reasons why one may.
func Main(m *testing.M, options sandbox.Options, started **sandbox.Sandbox, mayFall ...string) int {
	code, err := runInSandbox(m, options, started, len(mayFall) > 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func runInSandbox(m *testing.M, options sandbox.Options, started **sandbox.Sandbox, mayFall bool) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	options.NoDeprecated = true
	box, err := sandbox.Start(ctx, options)
	if err != nil {
		return 0, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, box.Stop()) }()
	if err := ApplyClass(ctx, box); err != nil {
		return 0, err
	}
	*started = box
	code = m.Run()
	if fallen := box.Kubelet.Fallen(); len(fallen) > 0 && !mayFall {
		return code, fmt.Errorf("nobody has killed them:\n%s", strings.Join(fallen, "\n"))
	}
	return code, nil
}

// ApplyClass makes the ClusterClass of a sandbox, which a move of its clusters takes away.
func ApplyClass(ctx context.Context, box *sandbox.Sandbox) error {
	return box.ApplyFile(ctx, "clusterclass/clusterclass-capmaas.yaml")
}

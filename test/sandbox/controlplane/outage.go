// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

const apiserverName = "kube-apiserver"

// apiserver is where the API server is among the processes, after etcd.
const apiserver = 1

// errNotStarted is for an API server that can't be ended or restarted because there is none.
var errNotStarted = errors.New("the control plane does not run")

// StopAPIServer kills the API server with SIGKILL, as a crash would, and returns when it is gone. No stored data is
// lost: etcd continues.
func (c *ControlPlane) StopAPIServer() error {
	if len(c.processes) <= apiserver {
		return fmt.Errorf("ending %s: %w", apiserverName, errNotStarted)
	}
	return c.processes[apiserver].Kill()
}

// StartAPIServer starts an API server that was ended again, at the same address, and returns when it is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	if len(c.processes) <= apiserver {
		return fmt.Errorf("starting %s: %w", apiserverName, errNotStarted)
	}
	ctx, cancel := context.WithTimeout(ctx, eventually.Limit)
	defer cancel()
	p, err := process.Start(c.spec(apiserverName, c.apiserverArgs(c.etcd, c.listen)))
	if err != nil {
		return err
	}
	c.processes[apiserver] = p
	return c.awaitService(ctx, p, apiserverName, c.host+"/readyz")
}

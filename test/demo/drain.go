// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const drainTimeout = 2 * eventually.Limit

// drain empties the LXD host of a control plane, as an operator does, and returns it into service when the cluster is
// whole elsewhere.
func (s *story) drain(ctx context.Context) error {
	draining, cancel := s.bounded(ctx, drainTimeout)
	defer cancel()
	host, err := s.hostOfControlPlane(draining)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := s.capmaasctl(draining, "host", "drain", host.Name, "--namespace="+host.Namespace, "--timeout="+drainTimeout.String()); err != nil {
		return err
	}
	s.emptied = time.Since(started)
	if err := s.box.WaitAvailable(draining, clusterName, s.controlPlanes+workers); err != nil {
		return err
	}
	return s.capmaasctl(draining, "host", "uncordon", host.Name, "--namespace="+host.Namespace)
}

// hostOfControlPlane returns the LXDHost that one of the cluster's control planes is on.
func (s *story) hostOfControlPlane(ctx context.Context) (*infrav1.LXDHost, error) {
	machines, hosts := &infrav1.MaasMachineList{}, &infrav1.LXDHostList{}
	ours := client.MatchingLabels{clusterv1.ClusterNameLabel: clusterName.Name}
	if err := s.box.Client.List(ctx, machines, client.InNamespace(clusterName.Namespace), ours, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("listing the control planes: %w", err)
	}
	if err := s.box.Client.List(ctx, hosts); err != nil {
		return nil, fmt.Errorf("listing the LXDHosts: %w", err)
	}
	for i := range hosts.Items {
		if slices.ContainsFunc(machines.Items, func(m infrav1.MaasMachine) bool { return m.Status.LXDHost == hosts.Items[i].Name }) {
			return &hosts.Items[i], nil
		}
	}
	return nil, errors.New("no LXDHost has a control plane")
}

// capmaasctl runs the operator's program on the management cluster.
func (s *story) capmaasctl(ctx context.Context, args ...string) error {
	return s.run(ctx, tool("CAPMAAS_BIN", "capmaasctl"), args...)
}

// run runs a program on the management cluster, and shows the command and its output as it comes.
func (s *story) run(ctx context.Context, program string, args ...string) error {
	s.out.print("$ " + program + " " + strings.Join(args, " "))
	command := exec.CommandContext(ctx, program, append(args, "--kubeconfig="+s.box.KubeconfigPath)...)
	output, err := command.StdoutPipe()
	if err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		s.out.print(lines.Text())
	}
	if err := command.Wait(); err != nil {
		return fmt.Errorf("running %s %s: %w", program, strings.Join(args, " "), err)
	}
	return nil
}

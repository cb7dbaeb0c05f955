// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	inviteTimeout = 5 * time.Minute
	// logTail is how much of the manager's log is shown after an error.
	logTail = 4000
	// maxRemains bounds the list of what is left.
	maxRemains = 20
)

// report prints the calls, and what is left in MAAS and in LXD.
func (s *story) report() error {
	created, deleted, all := s.book.Between(s.begin, s.up), s.book.Between(s.ready, s.gone), s.book.Between(s.begin, s.gone)
	earlier := s.book.Between(0, s.begin)
	ofHosts := 0
	for _, machine := range withoutMachines(&all, earlier.Machines) {
		ofHosts += len(machine.Calls)
	}
	withoutMachines(&created, earlier.Machines)
	withoutMachines(&deleted, earlier.Machines)
	remains, err := ledger.Remains(s.before, s.box.MAAS.State())
	if err != nil {
		return err
	}
	s.out.print("")
	s.out.print(s.figures(created, deleted, all, s.box.MAAS.Calls().Connections)...)
	if ofHosts > 0 {
		s.out.print(fmt.Sprintf("  besides, for hosts    %d", ofHosts))
	}
	s.out.print(left("Left in MAAS:           ", remains)...)
	if s.hosts != nil {
		s.out.print(left("Left in LXD:            ", s.hosts.left)...)
		remains = append(remains, s.hosts.left...)
	}
	if len(remains) > 0 {
		return errLeftovers
	}
	return nil
}

// withoutMachines drops machines that were there before from an account, and returns them.
func withoutMachines(account *ledger.Account, before []ledger.Machine) (dropped []ledger.Machine) {
	account.Machines = slices.DeleteFunc(account.Machines, func(m ledger.Machine) bool {
		old := slices.ContainsFunc(before, func(b ledger.Machine) bool { return b.SystemID == m.SystemID })
		if old {
			dropped = append(dropped, m)
		}
		return old
	})
	return dropped
}

// figures are what it took.
func (s *story) figures(created, deleted, all ledger.Account, connections int) []string {
	vms, metal := byKind(created)
	gone, released := byKind(deleted)
	asked := "VM hosts"
	if s.opts.direct() {
		asked = "devices"
	}
	lines := []string{
		fmt.Sprintf("Machines that came up:  %d (%d LXD VMs, %d bare metal)", len(created.Machines), len(vms), len(metal)),
		fmt.Sprintf("Time:                   %s until the cluster was available, %s to delete it", clockTime(s.came), clockTime(s.went)),
	}
	if s.opts.drain {
		lines = append(lines, fmt.Sprintf("  of the drain          %s until the host was empty", clockTime(s.emptied)))
	}
	if s.opts.real {
		lines = append(lines, fmt.Sprintf("  of the Service        %s until pods on two nodes reached each other through it", clockTime(s.greeted)))
	}
	if s.opts.upgrade {
		lines = append(lines, fmt.Sprintf("  of the upgrade        %s until all nodes ran the next Kubernetes, and the pods reached each other again", clockTime(s.upgraded)))
	}
	if s.hosts != nil {
		lines = append(lines, fmt.Sprintf("  of the hosts          %s until all nodes were %s, %s to delete them", clockTime(s.hosts.came), s.opts.hostKind(), clockTime(s.hosts.went)))
	}
	lines = append(lines,
		fmt.Sprintf("MAAS calls:             %d over %d connections", all.Total(), connections),
		fmt.Sprintf("  for each LXD VM       %s to create, %s to delete", spread(vms), spread(gone)),
		fmt.Sprintf("  for each bare metal   %s to create, %s to release", spread(metal), spread(released)),
		fmt.Sprintf("  for the cluster       %d for the DNS record of its API endpoint", len(all.Cluster)),
		fmt.Sprintf("  for all together      %d lists of all machines on their way, %d of zones, %s and the like", len(all.Polls), len(all.Shared), asked),
	)
	if n := len(all.Lost); n > 0 {
		lines = append(lines, fmt.Sprintf("  for nothing           %d", n))
	}
	return append(lines, s.lxd.lines(len(vms), len(gone))...)
}

// left describes what is left: the removed state (-), and the added one (+).
func left(where string, remains []string) []string {
	if len(remains) == 0 {
		return []string{where + "nothing"}
	}
	return append([]string{fmt.Sprintf("%s%d differences", where, len(remains))}, remains[:min(len(remains), maxRemains)]...)
}

func byKind(account ledger.Account) (vms, metal []ledger.Machine) {
	for _, m := range account.Machines {
		if m.VM {
			vms = append(vms, m)
		} else {
			metal = append(metal, m)
		}
	}
	return vms, metal
}

// spread is how many calls machines took, from the one with the fewest to the one with the most.
func spread(machines []ledger.Machine) string {
	var counts []int
	for _, m := range machines {
		counts = append(counts, len(m.Calls))
	}
	if len(counts) == 0 {
		return "0"
	}
	least, most := slices.Min(counts), slices.Max(counts)
	if least == most {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// invite prints what to try with the cluster.
func (s *story) invite(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, inviteTimeout)
	defer cancel()
	workload, err := s.box.WriteWorkloadKubeconfig(ctx, clusterName)
	if err != nil {
		return err
	}
	if err := writeEnv(s.box); err != nil {
		return err
	}
	s.out.print("",
		"The cluster is up. To look around, in another terminal, in this directory:",
		"",
		visitHint,
		"  kubectl get maasmachines",
		"  kubectl get lxdhosts --all-namespaces",
		"  kubectl get events --sort-by=.metadata.creationTimestamp",
		"  clusterctl describe cluster "+clusterName.Name,
		"",
		"The cluster's own nodes:",
		"  kubectl --kubeconfig "+workload+" get nodes",
	)
	if s.hosts != nil {
		s.out.print(s.hosts.hints()...)
	}
	if s.opts.real {
		s.out.print(s.realHints()...)
	}
	s.out.print(
		"A third worker:",
		"  kubectl patch cluster "+clusterName.Name+" --type json \\",
		`    -p '[{"op": "replace", "path": "/spec/topology/workers/machineDeployments/0/replicas", "value": 3}]'`,
		"A server fails:",
		breakHint,
		"All that MAAS, which is simulated, keeps:",
		"  curl -s $"+controlVariable+"/state",
		"The manager's log is in "+s.box.LogDir,
		"",
		"Ctrl-C stops everything.",
	)
	return nil
}

// tool is how to call a program in the directory that a variable names, from here.
func tool(variable, name string) string {
	dir := os.Getenv(variable)
	if dir == "" {
		return name
	}
	program := filepath.Join(dir, name)
	here, err := os.Getwd()
	if err != nil {
		return program
	}
	relative, err := filepath.Rel(here, program)
	if err != nil || strings.HasPrefix(relative, "..") {
		return program
	}
	return relative
}

// showTrouble shows the end of the manager's log, before it is removed with the sandbox.
func showTrouble(out *screen, box *sandbox.Sandbox) {
	if box.Kubelet == nil {
		return
	}
	containers := box.Kubelet.Containers()
	for _, node := range box.HostNodes() {
		containers = append(containers, node.Kubelet.Containers()...)
	}
	for _, container := range containers {
		data, err := os.ReadFile(container.LogFile)
		if err != nil {
			continue
		}
		out.print("", "The end of the log of "+container.Name+" on "+container.Node+":", string(data[max(0, len(data)-logTail):]))
	}
}

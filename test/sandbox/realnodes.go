// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/realnode"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// NodeImage is the image of real nodes, for the variable image of the ClusterClass.
const NodeImage = "u-2204-k8s-{version}"

// NodeVersions returns the versions of Kubernetes that real nodes can run.
func (s *Sandbox) NodeVersions() (previous, current string) {
	return s.previousKubernetes, s.kubernetes
}

// NodeImageOf is the image of real nodes with one of these versions.
func NodeImageOf(version string) string { return strings.ReplaceAll(NodeImage, "{version}", version) }

// addNodeImages gives MAAS the images of real nodes.
func (s *Sandbox) addNodeImages(ctx context.Context, region *simulator.Region) (err error) {
	if s.previousKubernetes, s.kubernetes, err = realnode.Versions(ctx, s.bin()); err != nil {
		return err
	}
	for _, version := range []string{s.previousKubernetes, s.kubernetes} {
		region.Images = append(region.Images, simulator.RegionImage{Name: NodeImageOf(version), Uploaded: true})
	}
	return nil
}

// NodesMAAS is the endpoint of MAAS in the network of real nodes.
const NodesMAAS = "http://10.77.0.2:5240/MAAS"

// startRealNodes prepares the disks of machines that are real, and gives these their systems.
func (s *Sandbox) startRealNodes(ctx context.Context) (err error) {
	options := realnode.Options{
		Logger: s.logger.WithName("realnode"), Bin: s.bin(), LogFile: filepath.Join(s.LogDir, "lxd-nodes.log"),
		Gateway: netip.MustParsePrefix("10.77.0.1/24"), MAAS: netip.MustParseAddr("10.77.0.2"), // as in region.yaml
		Handler: onlyMAAS(s.MAAS.Handler()),
	}
	if s.options.RealHosts {
		if options.Initializer, err = s.initializer().wait(ctx); err != nil {
			return err
		}
	}
	others := someMachines{s.all, func(m simulator.MachineSnapshot) bool { return !s.isPlayed(m) }}
	s.realNodes, err = realnode.Start(ctx, others, options)
	return err
}

// onlyMAAS serves what a MAAS does, without what is for testers.
func onlyMAAS(all http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/MAAS/", all)
	return mux
}

// bin is the directory of tools.
func (s *Sandbox) bin() string { return filepath.Join(s.root, "bin") }

// RunOnNode runs a shell script on a machine that is a real node, as root, and returns its output.
func (s *Sandbox) RunOnNode(ctx context.Context, systemID, script string) ([]byte, error) {
	return s.realNodes.Run(ctx, systemID, script)
}

// NodeShell returns the command that opens a shell on a machine, or "" where it is no real node that is on.
func (s *Sandbox) NodeShell(m simulator.MachineSnapshot) string {
	if !m.Running || len(m.UserData) == 0 || s.isPlayed(m) {
		return ""
	}
	return s.realNodes.Shell(m.SystemID)
}

// isPlayed reports whether the system of a machine is played where those of others are real.
func (s *Sandbox) isPlayed(m simulator.MachineSnapshot) bool {
	return !s.options.RealHosts && guest.InstallsLXD(m)
}

// someMachines are MAAS's, of which only some have an operating system of one kind: nothing is deployed on the others.
type someMachines struct {
	*machines
	have func(simulator.MachineSnapshot) bool
}

func (s someMachines) only(m simulator.MachineSnapshot) simulator.MachineSnapshot {
	if len(m.UserData) > 0 && !s.have(m) {
		m.UserData = nil
	}
	return m
}

func (s someMachines) Machine(systemID string) (simulator.MachineSnapshot, bool) {
	m, ok := s.machines.Machine(systemID)
	return s.only(m), ok
}

func (s someMachines) Machines() []simulator.MachineSnapshot {
	all := s.machines.Machines()
	for i := range all {
		all[i] = s.only(all[i])
	}
	return all
}

func (s someMachines) Subscribe(fn func(simulator.MachineSnapshot, simulator.Change)) (cancel func()) {
	return s.machines.Subscribe(func(m simulator.MachineSnapshot, change simulator.Change) { fn(s.only(m), change) })
}

// systems are the operating systems of all machines, where those of some are real.
type systems struct{ *Sandbox }

// Dial connects to the machine that has an address. Those that MAAS does not know of, such as virtual IPs, are real.
func (s systems) Dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	for _, m := range s.Machines() {
		if slices.Contains(m.Addresses, address.Addr()) && s.isPlayed(m) {
			return s.guests.Dial(ctx, address)
		}
	}
	return s.realNodes.Dial(ctx, address)
}

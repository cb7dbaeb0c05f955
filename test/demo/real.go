// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

const (
	// realTimeout is enough on two processors that others use, too.
	realTimeout  = 40 * time.Minute
	greetTimeout = eventually.Limit
)

// missing returns what this computer lacks for what the flags ask for.
func (o options) missing() error {
	if !o.real {
		return nil
	}
	return lxd.Missing()
}

// realNews says what is real, and what is not.
var realNews = []string{
	"The machines of the cluster are real nodes: Debian with systemd, cloud-init, containerd, kubelet and kubeadm, in containers of LXD.",
	"Played are MAAS and the nodes of the host cluster: their LXD is real, and so are the initializer and the VMs; kubeadm and kubelet are not.",
}

// setReal sets the variables of a cluster of real nodes. It begins with the version before the newest.
func (s *story) setReal(settings map[string]string) {
	settings["KUBERNETES_VERSION"], _ = s.box.NodeVersions()
	settings["MAAS_IMAGE"] = sandbox.NodeImage
}

// vmImages are those that VMs have, also after an upgrade.
func (s *story) vmImages() []string {
	if !s.opts.real {
		return []string{vmImage}
	}
	previous, current := s.box.NodeVersions()
	return []string{sandbox.NodeImageOf(previous), sandbox.NodeImageOf(current)}
}

// use does with a cluster of real nodes what it is for: pods reach each other through a Service.
func (s *story) use(ctx context.Context) error {
	started := time.Now()
	if err := s.greet(ctx); err != nil {
		return err
	}
	s.greeted = time.Since(started)
	s.out.print("Pods on two nodes reach each other through their Service  " + clockTime(s.greeted))
	return nil
}

// upgrade upgrades Kubernetes by one line, after which the pods reach each other again.
func (s *story) upgrade(ctx context.Context) error {
	started := time.Now()
	upgrading, cancel := s.bounded(ctx, realTimeout)
	defer cancel()
	_, version := s.box.NodeVersions()
	if err := s.run(upgrading, tool("KUBEBUILDER_ASSETS", "kubectl"), upgradeArgs(version)...); err != nil {
		return err
	}
	if err := s.box.WaitUpgraded(upgrading, clusterName, s.controlPlanes+workers, version); err != nil {
		return err
	}
	if err := s.greet(ctx); err != nil {
		return err
	}
	s.upgraded = time.Since(started)
	s.out.print("All nodes run " + version + ", and the pods reach each other again  " + clockTime(s.upgraded))
	return nil
}

// upgradeArgs are those of kubectl.
func upgradeArgs(version string) []string {
	return []string{"patch", "cluster", clusterName.Name, "--type=merge", fmt.Sprintf(`--patch={"spec":{"topology":{"version":"%s"}}}`, version)}
}

func (s *story) greet(ctx context.Context) error {
	greeting, cancel := s.bounded(ctx, greetTimeout)
	defer cancel()
	return s.box.Greet(greeting, clusterName)
}

// realHints returns how to look into real nodes.
func (s *story) realHints() []string {
	lines := []string{"A shell on a node:"}
	for _, m := range s.box.Machines() {
		if command := s.box.NodeShell(m); command != "" {
			lines = append(lines, "  "+command+"   # "+m.Hostname)
		}
	}
	_, version := s.box.NodeVersions()
	args := upgradeArgs(version)
	args[len(args)-1] = "'" + args[len(args)-1] + "'"
	return append(lines, "An upgrade of Kubernetes:", "  "+tool("KUBEBUILDER_ASSETS", "kubectl")+" "+strings.Join(args, " "))
}

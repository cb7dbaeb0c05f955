// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
)

// inFlags replaces the names of settings, which are the initializer's environment variables, by those of flags.
var inFlags = strings.NewReplacer(
	lxdnode.SettingStoragePool, "--storage-pool", lxdnode.SettingStorageBackend, "--storage-backend",
	lxdnode.SettingStorageSize, "--storage-size", lxdnode.SettingNetworkBridge, "--network-bridge",
	lxdnode.SettingCreateBridge, "--create-bridge", lxdnode.SettingProject, "--project",
	lxdnode.SettingListen, "--listen", "LXD_SOCKET", "--socket",
).Replace

// checkLXD checks the node's LXD, or repairs it.
func checkLXD(ctx context.Context, o options) checks {
	var found checks
	node := found.connect(ctx, o.socket)
	if node == nil {
		return found
	}
	inspect := node.Inspect
	if o.apply {
		inspect = node.Prepare
	}
	result, err := inspect(ctx, o.node)
	for _, one := range result {
		found = append(found, lineOf(one))
	}
	if err != nil && found.good() {
		found.lxdFailed(err)
	}
	return found
}

// lineOf turns a result of lxdnode into a line. --apply creates what is missing.
func lineOf(c lxdnode.Check) check {
	line := check{Name: lineName(c.Name), State: state(c.State), Found: inFlags(c.Found), Remedy: inFlags(c.Remedy)}
	if line.State == stateMissing && line.Remedy == "" {
		line.Remedy = "--apply makes it so"
	}
	return line
}

func lineName(step string) string { return strings.ReplaceAll(strings.ToLower(step), " ", "-") }

// connect returns a connection to LXD. Without one, it adds a failed check and returns nil.
func (c *checks) connect(ctx context.Context, socket string) *lxdnode.Node {
	node, err := lxdnode.Connect(ctx, lxdnode.Sockets(cmp.Or(socket, os.Getenv("LXD_SOCKET")))...)
	if err != nil {
		c.lxdFailed(err)
		return nil
	}
	return node
}

// lxdFailed turns an error of lxdnode into a line.
func (c *checks) lxdFailed(err error) {
	e, is := errors.AsType[*lxdnode.Error](err)
	if !is {
		c.failed("lxd", "", "%v", err)
		return
	}
	c.failed(lineName(e.Step), inFlags(e.Remedy), "%s", inFlags(e.Problem))
}

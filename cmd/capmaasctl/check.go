// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
)

func checkMAASCommand() command {
	return command{
		use: "maas", short: "Check MAAS, its version, the API key, and what clusters need",
		long: `It says where URL and key are from unless flags give both, and checks those of the manager, too, if
a management cluster has one. With --test-vm-host it checks the registration of the node
--node-ip, too. It changes nothing.
Also called as maas-test.`,
		example: `check maas
check maas --maas-endpoint=http://maas.example.com:5240/MAAS --maas-api-key-file=key --dns-domain=maas
check maas --test-vm-host --node-ip=10.77.0.21`,
		page:      "operator-checks.md",
		needsMAAS: true, hasTimeout: true,
		flags: func(o *options, fs *pflag.FlagSet) {
			fs.StringVar(&o.dnsDomain, "dns-domain", "", "DNS domain that MAAS has to have.")
			fs.BoolVar(&o.testVMHost, "test-vm-host", false, "Check the registration of the node --node-ip, too.")
			o.addVMHostFlags(fs)
		},
		complete: func(o *options, fs *pflag.FlagSet) { o.completeVMHost(fs, o.testVMHost) },
		find: func(ctx context.Context, o options, s surroundings) result {
			return newReport("check maas", checkMAAS(ctx, o, s), false, false)
		},
	}
}

func checkLXDCommand() command {
	return command{
		use: "lxd", short: "Check this node's LXD: pool, bridge, project, profile; --apply mends",
		long: `Checks whether this node's LXD is as MAAS needs it: storage pool, bridge, project, profile,
network address. Run it on the node, as root or as a member of the group lxd. With --apply it
creates missing objects.
Also called as lxd-test.`,
		example: `check lxd
check lxd --apply --storage-backend=zfs --storage-size=100 --network-bridge=br0`,
		page:       "operator-checks.md",
		hasTimeout: true,
		flags: func(o *options, fs *pflag.FlagSet) {
			o.addApplyFlags(fs)
			o.addLXDFlags(fs)
		},
		complete: func(o *options, _ *pflag.FlagSet) { o.checkNode() },
		find: func(ctx context.Context, o options, _ surroundings) result {
			return newReport("check lxd", checkLXD(ctx, o), true, o.apply)
		},
	}
}

func checkVMHostCommand() command {
	return command{
		use: "vm-host", short: "Check a node's VM host in MAAS; --apply registers it",
		long: `Checks whether a node is registered in MAAS as a VM host, where it should be, and whether MAAS
can use it. With --apply, on the node itself, it registers it, or brings its registration up to
date.
Also called as vmhost-test.`,
		example: `check vm-host --node-ip=10.77.0.21 --zone=rack-a --resource-pool=k8s
check vm-host --node-ip=10.77.0.21 --apply --maas-endpoint=http://maas.example.com:5240/MAAS --maas-api-key-file=key`,
		page:      "operator-checks.md",
		needsMAAS: true, hasTimeout: true,
		flags: func(o *options, fs *pflag.FlagSet) {
			o.addApplyFlags(fs)
			o.addVMHostFlags(fs)
		},
		complete: func(o *options, fs *pflag.FlagSet) {
			o.completeVMHost(fs, true)
			if o.socket != "" && !o.apply {
				o.wrong("--socket is for --apply: without it LXD is not asked")
			}
		},
		find: func(ctx context.Context, o options, _ surroundings) result {
			return newReport("check vm-host", checkVMHost(ctx, o), true, o.apply)
		},
	}
}

func (o *options) addApplyFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.apply, "apply", false, "Mend what can be mended from here. Without it nothing is changed.")
	fs.StringVar(&o.socket, "socket", "", "LXD's unix socket. Default: $LXD_SOCKET, then where the snap or the package "+
		"has it.")
}

func (o *options) addLXDFlags(fs *pflag.FlagSet) {
	o.node.AddFlags(fs)
	addProjectFlag(fs, &o.node.Project)
	fs.StringVar(&o.node.ListenAddress, "listen", o.node.ListenAddress, "Address that MAAS reaches LXD at, as "+
		"[host]:port. Default: the one that LXD listens on; where there is none, port 8443 of all.")
}

func addProjectFlag(fs *pflag.FlagSet, project *string) {
	fs.StringVar(project, "project", *project, "LXD project that MAAS uses.")
}

func (o *options) addVMHostFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.nodeIP, "node-ip", "", "IP address that MAAS reaches the node's LXD at.")
	fs.Uint16Var(&o.port, "port", o.port, "Port of LXD on the node.")
	fs.StringVar(&o.name, "vm-host-name", "", "Name of the VM host in MAAS. Default: any; a new one is named like this "+
		"machine.")
	addProjectFlag(fs, &o.project)
	fs.StringVar(&o.zone, "zone", "", "Zone that MAAS, and the VM host, has to have. Default: any; a new VM host gets "+
		"MAAS's default.")
	fs.StringVar(&o.resourcePool, "resource-pool", "", "Resource pool, likewise.")
}

// completeVMHost sets o.address. wanted: the node's registration is checked.
func (o *options) completeVMHost(flags *pflag.FlagSet, wanted bool) {
	ip, err := netip.ParseAddr(o.nodeIP)
	o.address = netip.AddrPortFrom(ip.Unmap(), o.port)
	switch {
	case wanted && o.nodeIP == "":
		o.wrong("--node-ip is missing: the address that MAAS reaches the node's LXD at")
	case o.nodeIP != "" && err != nil:
		o.wrong("--node-ip: %q is not an IP address such as 10.77.0.21", o.nodeIP)
	}
	if o.port == 0 {
		o.wrong("--port: 0 is not a port: LXD's is 8443")
	}
	if o.project == "" {
		o.wrong("--project: it is empty: LXD's own is default")
	}
	for _, name := range []string{"node-ip", "port", "vm-host-name", "project"} {
		if !wanted && flags.Changed(name) {
			o.wrong("--%s is for a VM host: add --test-vm-host", name)
		}
	}
}

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

// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/netns"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// nodeScript makes a node of fresh namespaces and keeps them. A new sysfs shows the node's own network devices, but not
// the cgroups, which are moved over from the old one. Nor does it show the blocks of the memory, one file for each 128
// MiB: LXD reads them all whenever it is asked for its resources, and without them what /proc says. The bridge's port
// makes it look as if a network were behind it; that network, like those of pods, is in another namespace. The shell is
// the first process of its namespace: it waits for all others.
const nodeScript = `set -eu
unshare --net sh -c 'echo $$ >"$BASE/outside.new"; mv "$BASE/outside.new" "$BASE/outside"; exec sleep infinity' &
mount --rbind /sys/fs/cgroup "$BASE/cgroup"
mount -t sysfs sysfs /sys
mount --move "$BASE/cgroup" /sys/fs/cgroup
[ ! -d /sys/devices/system/memory ] || mount -t tmpfs tmpfs /sys/devices/system/memory
ip link set lo up
while [ ! -e "$BASE/outside" ]; do sleep 0.02; done
ip link add "$CARD" ${MAC:+address "$MAC"} type veth peer name "$CARD" netns "$(cat "$BASE/outside")"
nsenter --net="/proc/$(cat "$BASE/outside")/ns/net" ip link set "$CARD" up
ip link add "$BRIDGE" ${MAC:+address "$MAC"} type bridge
ip link set "$CARD" master "$BRIDGE"
ip link set "$CARD" up
ip link set "$BRIDGE" up
ip address add "$ADDRESS" dev "$BRIDGE"
: >"$BASE/up"
while :; do sleep infinity & wait; done
`

// outsideFile has the id of a process in the network outside of the node.
const outsideFile = "outside"

// node is a set of namespaces with a network.
type node struct {
	// keeper is the program that made the namespaces and waits for the first process in them.
	keeper  *process.Process
	network *os.File
	// unforward ends forward, or is nil.
	unforward func()
}

// startNode makes a node whose files are in base.
func startNode(ctx context.Context, base string, o Options) (*node, error) {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return nil, fmt.Errorf("making a node: %w", err)
	}
	up, log := filepath.Join(base, "up"), filepath.Join(base, "node.log")
	if err := errors.Join(os.MkdirAll(filepath.Join(base, "cgroup"), 0o700), os.RemoveAll(up), os.RemoveAll(filepath.Join(base, outsideFile))); err != nil {
		return nil, fmt.Errorf("making a node: %w", err)
	}
	keeper, err := process.Start(process.Spec{
		Name: "unshare", Path: unshare,
		Args: []string{
			"--net", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", nodeScript,
		},
		Env: []string{
			"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "BASE=" + base,
			"BRIDGE=" + o.Bridge, "CARD=" + o.Card, "MAC=" + o.MAC, "ADDRESS=" + o.Address.String(),
		},
		Dir: base, LogFile: log,
	})
	if err != nil {
		return nil, fmt.Errorf("making a node: %w", err)
	}
	n := &node{keeper: keeper}
	if err := n.waitUp(ctx, up); err != nil {
		text, _ := os.ReadFile(log) // the node's own file
		return nil, errors.Join(fmt.Errorf("making a node: %w\n%s", err, text), n.stop())
	}
	n.network, err = os.Open(n.namespace("net"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a node: %w", err), n.stop())
	}
	return n, nil
}

func (n *node) waitUp(ctx context.Context, up string) error {
	return eventually.Wait(ctx, "its network", func() (bool, string, error) {
		select {
		case <-n.keeper.Done():
			return false, "", fmt.Errorf("its first process ended: %w", n.keeper.Err())
		default:
		}
		_, err := os.Stat(up)
		return err == nil, fmt.Sprint(err), nil
	})
}

func (n *node) namespace(kind string) string {
	return filepath.Join("/proc", strconv.Itoa(n.keeper.PID()), "ns", kind)
}

// namespaces are the options of nsenter for the node's.
func (n *node) namespaces() []string {
	return []string{"--net=" + n.namespace("net"), "--mount=" + n.namespace("mnt"), "--pid=" + n.namespace("pid_for_children")}
}

// start runs a program on the node.
func (n *node) start(spec process.Spec) (*process.Process, error) {
	enter, err := exec.LookPath("nsenter")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	spec.Args = append(append(n.namespaces(), spec.Path), spec.Args...)
	spec.Path = enter
	return process.Start(spec)
}

func (n *node) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return netns.Dial(ctx, n.network, network, address)
}

// forward leads connections to an address of the node to one of this computer, until stop.
func (n *node) forward(ctx context.Context, from string, to func() string) error {
	listener, err := netns.Listen(ctx, n.network, "tcp", from)
	if err != nil {
		return fmt.Errorf("listening on a node: %w", err)
	}
	n.unforward = netns.Forward(ctx, listener, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", to())
	})
	return nil
}

// stop ends all processes of the node: the kernel does so when the first one is gone, and the keeper ends after that.
// Mounts and network devices are removed with their namespaces.
func (n *node) stop() error {
	if n.unforward != nil {
		n.unforward()
	}
	err := killChildren(n.keeper.PID())
	timer := time.NewTimer(eventually.Limit)
	defer timer.Stop()
	select {
	case <-n.keeper.Done():
	case <-timer.C:
		err = errors.Join(err, errors.New("the processes of the node do not end"), n.keeper.Kill())
	}
	if n.network != nil {
		err = errors.Join(err, n.network.Close())
	}
	if err != nil {
		return fmt.Errorf("ending a node: %w", err)
	}
	return nil
}

// killChildren kills the children of a process with one thread. Having none is no error.
func killChildren(pid int) error {
	id := strconv.Itoa(pid)
	list, err := os.ReadFile(filepath.Join("/proc", id, "task", id, "children"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the children of process %d: %w", pid, err)
	}
	for _, text := range strings.Fields(string(list)) {
		child, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("finding the children of process %d: %w", pid, err)
		}
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing process %d: %w", child, err)
		}
	}
	return nil
}

// waitLoopDevices returns when no loop device has its file below a directory: they are removed a moment after their
// mounts.
func waitLoopDevices(dir string) error {
	return eventually.Wait(context.Background(), "the loop devices of "+dir+" to go", func() (bool, string, error) {
		files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, file := range files {
			backing, err := os.ReadFile(file) // one of the kernel's
			if err == nil && strings.HasPrefix(string(backing), dir+"/") {
				return false, string(backing), nil
			}
		}
		return true, "", err
	})
}

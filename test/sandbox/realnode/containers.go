// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// containers are those of one LXD daemon.
type containers struct{ lxdclient.InstanceServer }

const pool = "nodes"

// settings make a container look like a machine: its root is the machine's, and so are its cgroups and devices.
// kubelet insists on some of the kernel's settings, which all share: it finds files that have them.
func settings(tunables string) map[string]string {
	raw := []string{"lxc.cap.drop=", "lxc.cgroup.devices.allow=a", "lxc.cgroup2.devices.allow=a", "lxc.mount.auto=proc:rw sys:mixed cgroup:rw:force"}
	for name := range kubeletTunables {
		raw = append(raw, fmt.Sprintf("lxc.mount.entry=%s/%s proc/sys/%s none bind 0 0", tunables, strings.ReplaceAll(name, "/", "."), name))
	}
	return map[string]string{"security.privileged": "true", "security.nesting": "true", "security.devlxd": "false", "raw.lxc": strings.Join(raw, "\n")}
}

// kubeletTunables are what kubelet sets below /proc/sys, and to what.
var kubeletTunables = map[string]string{"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}

// lxdDir has, in each container, what the snap store would have: the packages of LXD, and programs that it needs.
const lxdDir = "/usr/local/lib/lxd-store"

// devices of each container.
var devices = map[string]map[string]string{
	"root": {"type": "disk", "path": "/", "pool": pool},
	"kmsg": {"type": "unix-char", "source": "/dev/kmsg", "path": "/dev/kmsg"},
}

var errScript = errors.New("it failed")

// importImage makes an image of a directory tree in a tar archive.
func (c containers) importImage(ctx context.Context, alias string, metadata, rootfs io.Reader) error {
	op, err := c.CreateImage(api.ImagesPost{Filename: alias}, &lxdclient.ImageCreateArgs{
		MetaFile: metadata, MetaName: "metadata.tar", RootfsFile: rootfs, RootfsName: "rootfs.tar", Type: "container",
	})
	if err := lxd.Finish(ctx, op, err); err != nil {
		return fmt.Errorf("importing the image %s: %w", alias, err)
	}
	fingerprint, _ := op.Get().Metadata["fingerprint"].(string)
	return c.CreateImageAlias(api.ImageAliasesPost{ImageAliasesEntry: api.ImageAliasesEntry{Name: alias, Target: fingerprint}})
}

// create makes a container from a source, with additional devices.
func (c containers) create(ctx context.Context, name string, source api.InstanceSource, config map[string]string, more map[string]map[string]string) error {
	all := maps.Clone(devices)
	maps.Copy(all, more)
	op, err := c.CreateInstance(api.InstancesPost{
		Name: name, Type: "container", Source: source, InstancePut: api.InstancePut{Config: config, Devices: all},
	})
	if err := lxd.Finish(ctx, op, err); err != nil {
		return fmt.Errorf("making the container %s: %w", name, err)
	}
	return nil
}

// power starts or stops a container, as a power button does.
func (c containers) power(ctx context.Context, name string, on bool) error {
	action := "stop"
	if on {
		action = "start"
	}
	op, err := c.UpdateInstanceState(name, api.InstanceStatePut{Action: action, Force: !on, Timeout: -1}, "")
	if err := lxd.Finish(ctx, op, err); err != nil {
		return fmt.Errorf("%s of %s: %w", action, name, err)
	}
	return nil
}

// remove deletes a container, whether it runs or not.
func (c containers) remove(ctx context.Context, name string) error {
	state, _, err := c.GetInstanceState(name)
	if api.StatusErrorCheck(err, 404) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	if state.StatusCode != api.Stopped {
		if err := c.power(ctx, name, false); err != nil {
			return err
		}
	}
	op, err := c.DeleteInstance(name)
	if err := lxd.Finish(ctx, op, err); err != nil {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	return nil
}

// run runs a script in a container, and returns its output.
func (c containers) run(ctx context.Context, name, script string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	finished := make(chan bool)
	op, err := c.ExecInstance(name, api.InstanceExecPost{Command: []string{"sh", "-euc", script}, WaitForWS: true}, &lxdclient.InstanceExecArgs{
		Stdin: bytes.NewReader(nil), Stdout: &stdout, Stderr: &stderr, DataDone: finished,
	})
	if err := lxd.Finish(ctx, op, err); err != nil {
		return nil, fmt.Errorf("running a script in %s: %w", name, err)
	}
	<-finished
	if status, _ := op.Get().Metadata["return"].(float64); status != 0 {
		return nil, fmt.Errorf("running a script in %s: %w: status %v: %s", name, errScript, status, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// write writes a file in a container that has its directory.
func (c containers) write(name, path string, content []byte) error {
	err := c.CreateInstanceFile(name, path, lxdclient.InstanceFileArgs{Content: bytes.NewReader(content), Mode: 0o600, Type: "file", WriteMode: "overwrite"})
	if err != nil {
		return fmt.Errorf("writing %s in %s: %w", path, name, err)
	}
	return nil
}

// link makes a symbolic link in a container.
func (c containers) link(name, path, target string) error {
	err := c.CreateInstanceFile(name, path, lxdclient.InstanceFileArgs{Content: strings.NewReader(target), Mode: 0o777, Type: "symlink"})
	if err != nil {
		return fmt.Errorf("linking %s in %s: %w", path, name, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/go-logr/logr"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// hardware is a machine's container, which one goroutine looks after.
type hardware struct {
	nodes  *Nodes
	name   string
	logger logr.Logger
	// written is whether the disk has an operating system, and on whether the power is.
	written, on bool
	// disks are its dataDisks, by their volumes.
	disks []string
}

// apply makes the container what the machine is.
func (h *hardware) apply(ctx context.Context, m simulator.MachineSnapshot, system bool) error {
	if h.written && !system {
		if err := h.timed("The disk is wiped", m, func() error { return h.wipe(ctx) }); err != nil {
			return err
		}
	}
	if m.Erased != "" && !h.written {
		if err := h.eraseDataDisks(); err != nil {
			return err
		}
	}
	if !h.written && system {
		if err := h.timed("The disk is written", m, func() error { return h.install(ctx, m) }); err != nil {
			return errors.Join(err, h.wipe(ctx))
		}
	}
	if !h.written || h.on == m.Running {
		return nil
	}
	say := "Power off"
	if m.Running {
		say = "Power on"
	}
	return h.timed(say, m, func() error {
		if err := h.nodes.containers.power(ctx, h.name, m.Running); err != nil {
			return err
		}
		h.on = m.Running
		return nil
	})
}

// timed does something, and logs how long it took.
func (h *hardware) timed(what string, m simulator.MachineSnapshot, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	h.logger.Info(what, "machine", m.Hostname, "image", m.Image, "took", time.Since(began).Round(10*time.Millisecond))
	return nil
}

// install writes the image to the disk, with what cloud-init finds there.
func (h *hardware) install(ctx context.Context, m simulator.MachineSnapshot) error {
	version, err := h.nodes.disk.installed(m.Image)
	if err != nil {
		return err
	}
	left, err := h.nodes.machines.InstalledFiles(m.SystemID, h.nodes.metadataURL())
	if err != nil {
		return err
	}
	if err := h.nodes.checkKernel(ctx, m); err != nil {
		return err
	}
	source, more := api.InstanceSource{Type: "copy", Source: prepared}, cards(m, bridge)
	disks, err := h.dataDisks(m)
	if err != nil {
		return err
	}
	maps.Copy(more, disks)
	maps.Copy(more, h.nodes.store)
	if err := h.nodes.containers.create(ctx, h.name, source, h.nodes.config, more); err != nil {
		return err
	}
	if err := h.nodes.containers.link(h.name, releaseLink, version); err != nil {
		return err
	}
	for path, content := range left {
		if err := h.nodes.containers.write(h.name, path, content); err != nil {
			return err
		}
	}
	h.written, h.on = true, false
	return nil
}

func (h *hardware) wipe(ctx context.Context) error {
	if err := h.nodes.containers.remove(ctx, h.name); err != nil {
		return err
	}
	h.written, h.on = false, false
	return nil
}

// discardTimeout bounds how long it takes to take one machine away. What is left then goes with LXD.
const discardTimeout = eventually.Limit

// discard takes the machine away.
func (h *hardware) discard(ctx context.Context) {
	if !h.written {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	if err := h.wipe(ctx); err != nil {
		h.logger.Error(err, "Taking a machine away")
	}
}

// SPDX-License-Identifier: Apache-2.0

package directhost

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// The marks of our VMs, in their configuration: the owner id of the cluster, and the name.
const (
	OwnerMark   = "user.capmaas.owner"
	MachineMark = "user.capmaas.machine"
)

// Instances are all in LXD, whatever made them, by name.
func (h *Host) Instances() (map[string]api.Instance, error) {
	list, err := h.client.GetInstances(api.InstanceTypeAny)
	if err != nil {
		return nil, fmt.Errorf("listing the instances: %w", err)
	}
	all := map[string]api.Instance{}
	for _, one := range list {
		all[one.Name] = one
	}
	return all, nil
}

// Make makes an empty VM without marks, as a neighbour would.
func (h *Host) Make(name string) error {
	return h.make(api.InstancesPost{
		Name: name, Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone},
		InstancePut: api.InstancePut{Profiles: []string{}, Devices: map[string]map[string]string{
			"root": {"type": "disk", "path": "/", "pool": lxdnode.DefaultStoragePool, "size": "64MiB"},
		}},
	})
}

func (h *Host) make(request api.InstancesPost) error {
	if err := h.finish(h.client.CreateInstance(request)); err != nil {
		return fmt.Errorf("making VM %s: %w", request.Name, err)
	}
	return nil
}

// Remove deletes a VM, whosever it is. One that is missing is no error.
func (h *Host) Remove(name string) error {
	stop := api.InstanceStatePut{Action: "stop", Force: true, Timeout: -1}
	_ = h.finish(h.client.UpdateInstanceState(name, stop, "")) // It may be stopped already.
	if err := h.finish(h.client.DeleteInstance(name)); err != nil && !api.StatusErrorCheck(err, http.StatusNotFound) {
		return fmt.Errorf("deleting VM %s: %w", name, err)
	}
	return nil
}

// Change changes keys of the configuration of a VM, whosever it is.
func (h *Host) Change(name string, config map[string]string) error {
	found, etag, err := h.client.GetInstance(name)
	if err != nil {
		return fmt.Errorf("changing VM %s: %w", name, err)
	}
	put := found.Writable()
	maps.Copy(put.Config, config)
	if err := h.finish(h.client.UpdateInstance(name, put, etag)); err != nil {
		return fmt.Errorf("changing VM %s: %w", name, err)
	}
	return nil
}

// Replace deletes a VM, and makes an empty one of that name with another MAC address.
func (h *Host) Replace(name, mac string) error {
	found, _, err := h.client.GetInstance(name)
	if err != nil {
		return fmt.Errorf("replacing VM %s: %w", name, err)
	}
	if err := h.Remove(name); err != nil {
		return err
	}
	request := api.InstancesPost{Name: name, Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone}, InstancePut: found.Writable()}
	request.Config = nil
	request.Devices = found.ExpandedDevices
	for _, device := range request.Devices {
		if device["type"] == "nic" {
			device["hwaddr"] = mac
		}
	}
	return h.make(request)
}

func (h *Host) finish(operation lxdclient.Operation, err error) error {
	return lxd.Finish(context.WithoutCancel(h.t.Context()), operation, err) // The end of a test deletes, too.
}

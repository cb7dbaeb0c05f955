// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"maps"
	"net/http"
	"net/url"
)

// StorageLayout is how MAAS partitions a machine's disks.
type StorageLayout struct {
	// Name is MAAS's: flat, lvm, bcache, vmfs6, vmfs7, custom or blank.
	Name string
	// RootDevice is the id of the disk that gets the root; 0 is the boot disk. What the firmware reads stays on the
	// boot disk.
	RootDevice int
	// Options are further parameters of op=set_storage_layout, for example vg_name.
	Options map[string]string
}

// SetStorageLayout replaces what the disks hold (POST machines/{id}/ op=set_storage_layout, for administrators).
// Conflict: the machine is not StatusReady. Invalid: it can't have the layout; then nothing has changed.
func (c *Client) SetStorageLayout(
	ctx context.Context, permit Permit, systemID string, layout StorageLayout,
) (*Machine, error) {
	form := setAll(url.Values{}, layout.Options)
	maps.Copy(form, formOf("storage_layout", layout.Name, "root_device", number(layout.RootDevice)))
	return c.machineCall(ctx, call{method: http.MethodPost, op: "set_storage_layout", params: form, permit: permit},
		systemID)
}

// RestoreStorage gives a machine the region's default layout (POST machines/{id}/ op=restore_storage_configuration, for
// administrators), whatever it had before SetStorageLayout. Conflict: it is neither StatusReady nor
// StatusFailedTesting.
func (c *Client) RestoreStorage(ctx context.Context, permit Permit, systemID string) (*Machine, error) {
	return c.machineCall(ctx, call{method: http.MethodPost, op: "restore_storage_configuration", permit: permit}, systemID)
}

// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"encoding/hex"

	"github.com/canonical/lxd/shared/api"
)

// seedDevice is the device on which cloud-init finds what the VM's configuration has for it.
const seedDevice = "cloud-init"

// Keys of a VM's configuration that LXD writes to that device.
const (
	keyUserData      = "cloud-init.user-data"
	keyVendorData    = "cloud-init.vendor-data"
	keyNetworkConfig = "cloud-init.network-config"
)

// Boot is what a VM boots, and what it is told. It is passed on as it is, to cloud-init or to whatever else reads a
// disk of the kind NoCloud.
type Boot struct {
	// Fingerprint is the whole one of an image of virtual machines that the project has.
	Fingerprint string
	// UserData, VendorData and NetworkConfig are left out where they are empty.
	UserData, VendorData, NetworkConfig string
}

// Clone makes a VM from the image in Spec.Boot, stopped: it boots with UEFI, without secure boot, from its root disk,
// which is as large as wanted.
//
// A VM of the name with the same marks is left as it is, but for missing further disks. Where Create asks LXD whether
// there is room, Clone goes by what was read of the host; see Connections.Read.
//
// It calls GET /1.0/instances/NAME, and GET operations if it is there; for a new VM POST instances and GET
// operations/ID/wait, and if LXD fails GET instances/NAME, and the same again; for further disks the same calls as
// Create.
//
// The error is that of Create. KindOther is also for an image that the project lacks, or that is larger than the root
// disk.
func (h *Host) Clone(ctx context.Context, spec Spec, seen Reading) error {
	return h.make(ctx, spec, spec.validateBoot, func(s *session) (devices, error) { return s.findOrClone(spec, seen) })
}

func (s *session) findOrClone(spec Spec, seen Reading) (devices, error) {
	has, err := s.made(spec.Name, spec.Marks)
	if err == nil || KindOf(err) != KindNotFound {
		return has, err
	}
	if !spec.SendBefore.IsZero() {
		s.turn.before = spec.SendBefore
	}
	bridge, err := seen.check(spec)
	if err != nil {
		return nil, err
	}
	has, err = s.create(spec, bridge)
	return has, sent(err)
}

// validateBoot is validate for Clone.
func (s Spec) validateBoot() error {
	if s.Boot == nil {
		return problem(KindInvalid, "an image is needed")
	}
	// LXD takes a part of a fingerprint for the first image that begins with it.
	if sum, err := hex.DecodeString(s.Boot.Fingerprint); err != nil || len(sum) != 32 {
		return problem(KindInvalid, "%q is no whole fingerprint of an image", s.Boot.Fingerprint)
	}
	return s.validate()
}

// addTo makes a request that of a VM with an image.
func (b *Boot) addTo(request *api.InstancesPost) {
	request.Source = api.InstanceSource{Type: api.SourceTypeImage, Fingerprint: b.Fingerprint}
	for key, value := range map[string]string{keyUserData: b.UserData, keyVendorData: b.VendorData,
		keyNetworkConfig: b.NetworkConfig} {
		if value != "" {
			request.Config[key] = value
		}
	}
}

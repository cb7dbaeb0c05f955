// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Place notes id and name of a VM host. A host that was registered anew has the same name and another id; one whose name
// was changed keeps its id. ID 0 is one whose id is not known.
func (v *vmHosts) Place(host Host) string { return strconv.Itoa(host.ID) + "/" + host.Name }

func parsePlace(place string) (id int, name string) {
	digits, name, _ := strings.Cut(place, "/")
	id, _ = strconv.Atoi(digits) // 0: looked for by its name.
	return id, name
}

// Verify has MAAS look at the VM host (POST vm-hosts/{id}/ op=refresh), and then for the VM by its name. What MAAS finds on a host and does not
// know becomes a machine of the VM's name, is commissioned, and nobody's. Forbidden: the key's user may not have MAAS look.
func (v *vmHosts) Verify(ctx context.Context, vm VM) (*VM, error) {
	since := v.looks.askedSince(vm.Hostname, vm.Place)
	failed := v.lookAt(ctx, vm.Place, func(id int) error {
		return v.looks.look(ctx, id, since, func(ctx context.Context) error {
			_, err := v.inventory.Client().RefreshVMHost(ctx, id)
			return err
		})
	})
	var later *LaterError
	if errors.As(failed, &later) || isOurOwn(failed) {
		return nil, failed
	}
	// Also after a failure: somebody else may have had MAAS look. And it tells a host that can't be reached from a MAAS that can't be.
	found, err := v.inventory.Client().ListMachines(ctx, maas.MachineFilter{Hostnames: []string{vm.Hostname}})
	if err != nil {
		return nil, fmt.Errorf("looking whether VM %s came back: %w", vm.Hostname, err)
	}
	for _, m := range found {
		if m.Pod != nil {
			return &VM{SystemID: m.SystemID, Hostname: m.Hostname, Host: m.Pod.Name, HostID: m.Pod.ID}, nil
		}
	}
	if failed != nil {
		return nil, unverified(vm, failed)
	}
	v.looks.forget(vm.Hostname)
	return nil, nil
}

// lookAt looks at the host of a place, wherever it is registered now. A host that MAAS does not have is no error, nor is a MAAS that has no VM hosts.
func (v *vmHosts) lookAt(ctx context.Context, place string, look func(id int) error) error {
	id, name := parsePlace(place)
	if id != 0 {
		if err := look(id); !errors.Is(err, maas.NotFound) {
			return unlessGone(err)
		}
	}
	hosts, _, err := v.inventory.VMHosts(ctx, hostsMaxAge)
	if err != nil {
		return unlessGone(err)
	}
	for _, host := range hosts {
		if host.Name == name && host.ID != id {
			if err := look(host.ID); !errors.Is(err, maas.NotFound) {
				return unlessGone(err)
			}
		}
	}
	return nil
}

func unlessGone(err error) error {
	if errors.Is(err, maas.Gone) {
		return nil
	}
	return err
}

// isOurOwn tells failures that say nothing about the host.
func isOurOwn(err error) bool {
	return errors.Is(err, maas.Forbidden) || errors.Is(err, maas.Unauthorized) || maas.NotSent(err) || errors.Is(err, context.Canceled)
}

func unverified(vm VM, failed error) error {
	_, name := parsePlace(vm.Place)
	err := &UnverifiedError{Host: name, After: firstLookRetry, cause: failed}
	var look *lookFailedError
	if errors.As(failed, &look) {
		err.After = look.after
	}
	return err
}

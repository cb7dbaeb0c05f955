// SPDX-License-Identifier: Apache-2.0

// Package rights knows what the key of a MAAS user must be allowed for each use of MAAS, and which use a call was for
// that MAAS forbids.
//
// Up to MAAS 3.7 a user is an administrator or not, which MAAS tells. From 3.8 on, users are in groups, and these have
// entitlements, which MAAS tells only those who may see all groups: what the user lacks shows when a call is forbidden.
package rights

import (
	"context"
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Entitlement is what MAAS 3.8 and newer let the users of a group do: in all of MAAS, or to the machines of one
// resource pool.
type Entitlement string

// The entitlements that the provider needs. Those of machines can be given for one resource pool.
const (
	CanEditMachines          Entitlement = "can_edit_machines"
	CanDeployMachines        Entitlement = "can_deploy_machines"
	CanViewAvailableMachines Entitlement = "can_view_available_machines"
	CanEditGlobalEntities    Entitlement = "can_edit_global_entities"
	CanViewGlobalEntities    Entitlement = "can_view_global_entities"
	CanEditBootEntities      Entitlement = "can_edit_boot_entities"
	CanViewControllers       Entitlement = "can_view_controllers"
)

// Need is an entitlement that a use needs.
type Need struct {
	Entitlement Entitlement
	// InPool: for the resource pool of the machines is enough; otherwise it must be for all of MAAS.
	InPool bool
}

// Use is something that the provider does in MAAS.
type Use struct {
	// Name is the use's in docs/security.md.
	Name string
	// What it is, for people.
	What string
	// Administrator: up to MAAS 3.7, it needs an administrator's key.
	Administrator bool
	// OnVMHosts: only a MAAS with VM hosts has it.
	OnVMHosts bool
	// Needs are what it needs from MAAS 3.8 on.
	Needs []Need
}

func inPool(e Entitlement) Need { return Need{e, true} }
func inMAAS(e Entitlement) Need { return Need{e, false} }

// administrators is a use that needs an administrator's key up to MAAS 3.7.
func administrators(name, what string, needs ...Need) Use {
	return Use{Name: name, What: what, Administrator: true, Needs: needs}
}

var (
	editInPool = inPool(CanEditMachines)
	editAll    = inMAAS(CanEditGlobalEntities)
	viewAll    = inMAAS(CanViewGlobalEntities)
)

// What the provider does in MAAS. Uses are added up: an interface of bare metal needs what both do.
var (
	BareMetal = Use{Name: "bare-metal", What: "bare metal",
		Needs: []Need{inPool(CanDeployMachines), inPool(CanViewAvailableMachines)}}
	VMs = Use{Name: "vms", What: "VMs on VM hosts of MAAS", Administrator: true, OnVMHosts: true,
		Needs: []Need{editInPool}}
	DNSEndpoint     = administrators("dns-endpoint", "API endpoint in MAAS's DNS", editAll)
	VirtualIP       = administrators("virtual-ip", "virtual IP", viewAll)
	StaticAddresses = administrators("static-addresses", "static addresses", editInPool, viewAll)
	Interfaces      = administrators("interfaces", "bonds, VLANs and bridges", editInPool, viewAll)
	HostBridge      = administrators("host-bridge", "bridges for VMs on nodes of host clusters", editInPool)
	Storage         = administrators("storage", "storage layouts", editInPool)
	HardwareTests   = administrators("hardware-tests", "hardware tests before a deployment", editInPool)
	Tags            = administrators("quarantine-tags", "tags for quarantine and exclusion", editAll)
	// The second is to go on with an upload that was interrupted.
	ImageUpload = administrators("image-upload", "upload of images", inMAAS(CanEditBootEntities),
		inMAAS(CanViewControllers))
	Registration = administrators("registration", "registration of VM hosts, and the initializer on nodes",
		inMAAS(CanEditMachines))
)

// Uses are all uses.
var Uses = []Use{
	BareMetal, VMs, DNSEndpoint, VirtualIP, StaticAddresses, Interfaces, HostBridge, Storage, HardwareTests, Tags,
	ImageUpload, Registration,
}

// Users says who may use MAAS so that other users may not, for people; pool is the resource pool, or "" for any.
func (u Use) Users(pool string) string { return users(u.Needs, pool) }

func users(needs []Need, pool string) string {
	return "administrators, and from MAAS 3.8 on users with " + Describe(needs, pool)
}

// Describe names entitlements, and what they are for.
func Describe(needs []Need, pool string) string {
	where := "a resource pool"
	if pool != "" {
		where = "resource pool " + pool
	}
	parts := list.Each(needs, func(n Need) string {
		return string(n.Entitlement) + " in " + map[bool]string{true: where, false: "all of MAAS"}[n.InPool]
	})
	return strings.Join(parts, " and ")
}

// Asker knows one MAAS, and the user of one key.
type Asker interface {
	// HasEntitlements reports whether this MAAS has entitlements.
	HasEntitlements(ctx context.Context) (bool, error)
	// User returns the key's user.
	User(ctx context.Context) (maas.User, error)
}

// Require returns an *Error if the key's user must be an administrator for a use, and is none: up to MAAS 3.7.
func Require(ctx context.Context, a Asker, what string, u Use) error {
	entitled, err := a.HasEntitlements(ctx)
	if err != nil || entitled || !u.Administrator {
		return err
	}
	user, err := a.User(ctx)
	if err != nil || user.Administrator {
		return err
	}
	return &Error{What: what, User: user.Username}
}

// Error means that the API key's user may not do what is needed.
type Error struct {
	// What needs it: a field, a thing, or a call.
	What string
	// User is the key's user in MAAS, who is no administrator; "" if MAAS forbids a call.
	User string
	// Missing is what the user needs for the call, from MAAS 3.8 on.
	Missing []Need
	// Pool is the resource pool for which it is missing, or "" for any.
	Pool string
	// Lockable: MAAS may also forbid the call because a person has locked the machine.
	Lockable bool

	cause error
}

// Unwrap returns MAAS's refusal, if it forbids a call.
func (e *Error) Unwrap() error { return e.cause }

// Error is what is needed, and the remedy.
func (e *Error) Error() string { return e.Found() + ": " + e.Remedy() }

// Found names what is needed, and the user.
func (e *Error) Found() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("%s needs an API key of a MAAS administrator, and this one's user, %s, is none", e.What, e.User)
	}
	return fmt.Sprintf("MAAS forbids %s to the API key's user: it is for %s", e.What, users(e.Missing, e.Pool))
}

// Remedy is what helps.
func (e *Error) Remedy() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("use an administrator's key, or make %s one", e.User)
	}
	remedy := "give a group of the user the entitlement (docs/security.md#the-least-key), or use another key"
	if e.Lockable {
		remedy += "; if the machine is locked, unlock it"
	}
	return remedy
}

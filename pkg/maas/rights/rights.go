// SPDX-License-Identifier: Apache-2.0

// Package rights knows what the key of a MAAS user must be allowed for each use of MAAS, and finds out whether it is.
//
// Up to MAAS 3.7 a user is an administrator or not. From 3.8 on, users are in groups, and these have entitlements.
package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Need is an entitlement that a use needs.
type Need struct {
	Entitlement maas.Entitlement
	// InPool: for the resource pool of the machines is enough; otherwise it must be for all of MAAS.
	InPool bool
}

// Use is something that the provider does in MAAS.
type Use struct {
	// Name is the use's in the output of capmaasctl.
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

func inPool(e maas.Entitlement) Need { return Need{e, true} }
func inMAAS(e maas.Entitlement) Need { return Need{e, false} }

// administrators is a use that needs an administrator's key up to MAAS 3.7.
func administrators(name, what string, needs ...Need) Use {
	return Use{Name: name, What: what, Administrator: true, Needs: needs}
}

var (
	editInPool = inPool(maas.CanEditMachines)
	editAll    = inMAAS(maas.CanEditGlobalEntities)
	viewAll    = inMAAS(maas.CanViewGlobalEntities)
)

// What the provider does in MAAS. Uses are added up: an interface of bare metal needs what both do.
var (
	BareMetal = Use{Name: "bare-metal", What: "bare metal",
		Needs: []Need{inPool(maas.CanDeployMachines), inPool(maas.CanViewAvailableMachines)}}
	VMs = Use{Name: "vms", What: "VMs on VM hosts of MAAS", Administrator: true, OnVMHosts: true,
		Needs: []Need{editInPool}}
	DNSEndpoint     = administrators("dns-endpoint", "API endpoint in MAAS's DNS", editAll)
	VirtualIP       = administrators("virtual-ip", "virtual IP", viewAll)
	StaticAddresses = administrators("static-addresses", "static addresses", editInPool, viewAll)
	Interfaces      = administrators("interfaces", "bonds, VLANs and bridges", editInPool, viewAll)
	HostBridge      = administrators("host-bridge", "bridges for VMs on nodes of host clusters", editInPool)
	Storage         = administrators("storage", "storage layouts", editInPool)
	Tags            = administrators("quarantine-tags", "tags for quarantine and exclusion", editAll)
	// The second is to go on with an upload that was interrupted.
	ImageUpload = administrators("image-upload", "upload of images", inMAAS(maas.CanEditBootEntities),
		inMAAS(maas.CanViewControllers))
	Registration = administrators("registration", "registration of VM hosts, and the initializer on nodes",
		inMAAS(maas.CanEditMachines))
)

// Uses are all uses.
var Uses = []Use{
	BareMetal, VMs, DNSEndpoint, VirtualIP, StaticAddresses, Interfaces, HostBridge, Storage, Tags, ImageUpload,
	Registration,
}

// Users says who may use MAAS so that other users may not, for people; pool is the resource pool, or "" for any.
func (u Use) Users(pool string) string {
	return "administrators, and from MAAS 3.8 on users with " + Describe(u.Needs, pool)
}

// Answer is whether a key has an entitlement.
type Answer int

// The answers. Unknown: MAAS can't be asked now, as no machine of the pool is free. Absent: this MAAS has no such
// thing.
const (
	Unknown Answer = iota
	Yes
	No
	Absent
)

// Asker asks one MAAS about one key.
type Asker interface {
	// HasEntitlements reports whether this MAAS has entitlements.
	HasEntitlements(ctx context.Context) (bool, error)
	// User returns the key's user.
	User(ctx context.Context) (maas.User, error)
	// Has reports whether the user has an entitlement: for all of MAAS or, if there is a pool, for that one.
	Has(ctx context.Context, e maas.Entitlement, pool *maas.Ref) (Answer, error)
}

// Error means that the API key's user may not do what is needed.
type Error struct {
	// What needs it: a field, or a thing.
	What string
	// User is the key's user in MAAS.
	User string
	// Missing are the entitlements that the user lacks; none means that the user is no administrator.
	Missing []Need
	// Pool is the resource pool for which they are missing, or "" for any.
	Pool string
}

// Error names what is needed, the user, and the remedy.
func (e *Error) Error() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("%s needs an API key of a MAAS administrator, and this one's user, %s, is none: "+
			"use an administrator's key, or make %s one", e.What, e.User, e.User)
	}
	return fmt.Sprintf("%s needs %s, and no group of the API key's user, %s, has that: give it to one of them, or use "+
		"another key", e.What, Describe(e.Missing, e.Pool), e.User)
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

// Lacking returns what a key lacks for a use in a pool. unknown: something that is needed could not be found out.
func Lacking(ctx context.Context, a Asker, u Use, pool *maas.Ref) (missing []Need, unknown bool, err error) {
	for _, n := range u.Needs {
		of := pool
		if !n.InPool {
			of = nil
		}
		has, err := a.Has(ctx, n.Entitlement, of)
		if err != nil {
			return nil, false, fmt.Errorf("asking MAAS whether the API key's user has %s: %w", n.Entitlement, err)
		}
		switch has {
		case No:
			missing = append(missing, n)
		case Unknown:
			unknown = true
		}
	}
	return missing, unknown, nil
}

// Pools returns the resource pools of which the machine may be that something is done with.
type Pools func(context.Context) ([]maas.Ref, error)

// Where returns those of the pools in which a key may be used so, as far as is known: MAAS gives machines of no others.
func Where(a Asker, u Use, pools Pools) Pools {
	return func(ctx context.Context) (usable []maas.Ref, err error) {
		all, err := pools(ctx)
		for i := range all {
			missing, _, failed := Lacking(ctx, a, u, &all[i])
			if err = errors.Join(err, failed); len(missing) == 0 {
				usable = append(usable, all[i])
			}
		}
		return usable, err
	}
}

// Require returns an *Error if a key may not be used so. What a use needs in a pool must be so in each of the pools,
// which are asked for only then; what could not be found out counts as given.
func Require(ctx context.Context, a Asker, what string, u Use, pools Pools) error {
	return demand(ctx, a, what, u, pools, false)
}

// RequireOne is Require for a use for which one of the pools is enough.
func RequireOne(ctx context.Context, a Asker, what string, u Use, pools Pools) error {
	return demand(ctx, a, what, u, pools, true)
}

func demand(ctx context.Context, a Asker, what string, u Use, pools Pools, one bool) error {
	entitled, err := a.HasEntitlements(ctx)
	if err != nil || !entitled && !u.Administrator {
		return err
	}
	if !entitled {
		user, err := a.User(ctx)
		if err != nil || user.Administrator {
			return err
		}
		return &Error{What: what, User: user.Username}
	}
	candidates := []*maas.Ref{nil}
	if slices.ContainsFunc(u.Needs, func(n Need) bool { return n.InPool }) {
		refs, err := pools(ctx)
		if err != nil || len(refs) == 0 {
			return err // Somebody else says that there is no such pool.
		}
		candidates = candidates[:0]
		for i := range refs {
			candidates = append(candidates, &refs[i])
		}
	}
	if one {
		return inOne(ctx, a, what, u, candidates)
	}
	for i := range candidates {
		if err := inOne(ctx, a, what, u, candidates[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// inOne returns an *Error unless a key may be used so in one of the pools.
func inOne(ctx context.Context, a Asker, what string, u Use, pools []*maas.Ref) error {
	refused := &Error{What: what}
	for _, pool := range pools {
		missing, _, err := Lacking(ctx, a, u, pool)
		if err != nil || len(missing) == 0 {
			return err
		}
		refused.Missing = missing
	}
	if len(pools) == 1 && pools[0] != nil {
		refused.Pool = pools[0].Name
	}
	user, err := a.User(ctx)
	if err != nil {
		return err
	}
	refused.User = user.Username
	return refused
}

// Finding is whether a key may be used in a way.
type Finding struct {
	Use
	Answer
	// Pools are the names of those in which it may, or, if it is Unknown, perhaps.
	Pools []string
	// Missing are what it lacks, if it may not: in the pool where it lacks least.
	Missing []Need
}

// Usable reports whether a key may be used so, as far as is known.
func (f *Finding) Usable() bool { return f.Answer == Yes || f.Answer == Unknown }

// Survey finds out for each use whether a key may be used so, in which of the pools.
func Survey(ctx context.Context, a Direct, pools []maas.Ref) ([]Finding, error) {
	entitled, err := a.HasEntitlements(ctx)
	if err != nil {
		return nil, err
	}
	user, err := a.User(ctx)
	if err != nil {
		return nil, err
	}
	hasVMHosts, err := a.HasVMHosts(ctx)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, u := range Uses {
		f := Finding{Use: u, Answer: Yes}
		switch {
		case u.OnVMHosts && !hasVMHosts:
			f.Answer = Absent
		case entitled:
			if f, err = survey(ctx, a, u, pools); err != nil {
				return nil, err
			}
		case u.Administrator && !user.Administrator:
			f.Answer = No
		}
		found = append(found, f)
	}
	return found, nil
}

func survey(ctx context.Context, a Asker, u Use, pools []maas.Ref) (Finding, error) {
	f := Finding{Use: u, Answer: No}
	if !slices.ContainsFunc(u.Needs, func(n Need) bool { return n.InPool }) {
		missing, _, err := Lacking(ctx, a, u, nil)
		if f.Missing = missing; len(missing) == 0 {
			f.Answer = Yes
		}
		return f, err
	}
	var perhaps []string
	for i := range pools {
		missing, unknown, err := Lacking(ctx, a, u, &pools[i])
		switch {
		case err != nil:
			return f, err
		case len(missing) > 0 && (f.Missing == nil || len(missing) < len(f.Missing)):
			f.Missing = missing
		case len(missing) == 0 && unknown:
			perhaps = append(perhaps, pools[i].Name)
		case len(missing) == 0:
			f.Pools = append(f.Pools, pools[i].Name)
		}
	}
	switch {
	case len(f.Pools) > 0:
		f.Answer, f.Missing = Yes, nil
	case len(perhaps) > 0:
		f.Answer, f.Pools, f.Missing = Unknown, perhaps, nil
	}
	return f, nil
}

// Direct is an Asker that asks MAAS each time.
type Direct struct{ *maas.Client }

// HasEntitlements goes by MAAS's version.
func (d Direct) HasEntitlements(ctx context.Context) (bool, error) {
	version, err := d.Version(ctx)
	if err != nil {
		return false, fmt.Errorf("reading MAAS's version: %w", err)
	}
	return version.AtLeast(3, 8, 0), nil
}

// HasVMHosts reports whether MAAS has VM hosts, by what it says of them.
func (d Direct) HasVMHosts(ctx context.Context) (bool, error) {
	_, err := d.ListVMHosts(ctx)
	if errors.Is(err, maas.Gone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking MAAS whether it has VM hosts: %w", err)
	}
	return true, nil
}

// User asks for the key's user.
func (d Direct) User(ctx context.Context) (maas.User, error) {
	user, err := d.WhoAmI(ctx)
	if err != nil {
		return user, fmt.Errorf("asking MAAS for the user of the API key: %w", err)
	}
	return user, nil
}

// Has asks for an entitlement.
func (d Direct) Has(ctx context.Context, e maas.Entitlement, pool *maas.Ref) (Answer, error) {
	var may bool
	var err error
	switch {
	case pool == nil:
		may, err = d.Entitled(ctx, e)
	case e == maas.CanDeployMachines:
		return d.deploysIn(ctx, *pool)
	default:
		may, err = d.EntitledIn(ctx, e, pool.ID)
	}
	switch {
	case errors.Is(err, maas.NotFound):
		return Unknown, nil
	case err != nil:
		return Unknown, err
	case may:
		return Yes, nil
	}
	return No, nil
}

// deploysIn asks whether MAAS would allocate a free machine of the pool, unless the user may edit them all.
func (d Direct) deploysIn(ctx context.Context, pool maas.Ref) (Answer, error) {
	if edits, err := d.Has(ctx, maas.CanEditMachines, &pool); err != nil || edits == Yes {
		return edits, err
	}
	free, err := d.ListMachines(ctx, maas.MachineFilter{Pools: []string{pool.Name}, Statuses: []string{"ready"}})
	if err != nil {
		return Unknown, err
	}
	for _, m := range free {
		if m.Owner != "" || m.Locked {
			continue
		}
		_, err := d.PickMachine(ctx, maas.AllocateParams{SystemID: m.SystemID})
		if !errors.Is(err, maas.Conflict) {
			return Yes, err
		}
		again, err := d.GetMachine(ctx, m.SystemID)
		if err == nil && again.Status == maas.StatusReady && again.Owner == "" && !again.Locked {
			return No, nil
		}
	}
	return Unknown, nil
}

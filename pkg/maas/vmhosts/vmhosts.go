// SPDX-License-Identifier: Apache-2.0

// Package vmhosts registers LXD hosts as VM hosts of MAAS, finds them again, and removes them. MAAS itself silently
// registers the same host twice, and keeps hosts that it never reached; so this package searches before it writes.
package vmhosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Registration is the wanted registration of an LXD host.
type Registration struct {
	// Name of the VM host; with the initializer, the node's. It proves nothing: another host may have it, too.
	Name string
	// PowerAddress is where MAAS reaches LXD: host:port.
	PowerAddress string
	// Project that MAAS uses in LXD. The same LXD with another project is another VM host.
	Project string
	// Certificate and Key are PEM, MAAS's identity towards LXD. Both empty: MAAS's are not changed.
	Certificate, Key string
	// Earlier are the fingerprints of certificates that were this host's own before Certificate.
	Earlier []string
	// Zone and ResourcePool by name. Empty: MAAS's are not changed.
	Zone, ResourcePool string
	// SystemID is the machine that the host runs on, if it is known. It finds a host that was registered under another
	// name.
	SystemID string
	// ID is the ID that an earlier Ensure returned, or 0. While it is right, finding the host does not read all hosts.
	ID int
}

// Result is what Ensure found and did.
type Result struct {
	Host maas.VMHost
	// Created: the host was not registered before.
	Created bool
	// Changes names what was updated: name, power address, certificate, zone, resource pool.
	Changes []string
	// NoVMHosts: this MAAS has none any more. Nothing else is set.
	NoVMHosts bool
}

// Kind is what keeps a host from being registered.
type Kind int

// Ambiguous: several VM hosts of MAAS may be it. Taken: one has its name or its address, and nothing proves to be it;
// that is another host's until a person says otherwise. Occupied: MAAS does not have it, and VMs are on it: if it is
// registered, MAAS takes them for new machines, commissions each at once, which switches it off and on, and then offers
// it to everybody.
const (
	Ambiguous Kind = iota
	Taken
	Occupied
)

// Error is why a host is not registered, nor its registration changed, until a person decides.
type Error struct {
	Kind
	// Problem is what there is, Remedy what a person has to decide.
	Problem, Remedy string
	// IDs of the VM hosts in MAAS that it is about.
	IDs []int
}

// Error returns the problem and the remedy.
func (e *Error) Error() string { return e.Problem + ": " + e.Remedy }

// VMCounter asks a host's LXD how many VMs a project has.
type VMCounter func(ctx context.Context, project string) (int, error)

// Service registers hosts in one MAAS. Its client's user must have the right of rights.Registration.
type Service struct {
	client *maas.Client
}

// NewService makes a Service.
func NewService(client *maas.Client) *Service { return &Service{client: client} }

// found is a VM host with its power parameters, which the list does not show.
type found struct {
	host  maas.VMHost
	power maas.VMHostPower
}

// proof is what shows whether a VM host is the host of a Registration.
type proof int

const (
	unrelated proof = iota
	// taken: it has the host's name or address, and may be another one.
	taken
	// reached: MAAS reaches it at the host's address, and one of the two machines is not known.
	reached
	// proven: MAAS shows it on the host's machine; or it is taken, and MAAS's certificate for it is the host's own.
	proven
)

// of returns what shows whether a VM host is the host that r describes.
func (r *Registration) of(f found) proof {
	at, named := normal(f.power.PowerAddress) == normal(r.PowerAddress), f.host.Name == r.Name
	switch {
	case f.power.Project != r.Project:
		return unrelated // Another project is another host in MAAS: its VMs are not ours.
	case isShownOn(f.host, r.SystemID):
		return proven
	case !at && !named:
		return unrelated
	case owns(f.power.Certificate, r.Certificate, r.Earlier):
		return proven
	case at && (r.SystemID == "" || f.host.Host.SystemID == ""):
		return reached
	}
	return taken
}

// owns reports whether a certificate (PEM) is a host's own: the current one, or one of those that it replaced, by their
// fingerprints.
func owns(certificate, current string, earlier []string) bool {
	if certificate == "" {
		return false
	}
	fingerprint, err := lxdnode.Fingerprint([]byte(certificate))
	return samePEM(certificate, current) || (err == nil && slices.Contains(earlier, fingerprint))
}

// find returns the VM host that r describes, or nil: one that is proven to be it, or else the one that MAAS reaches at
// its address while nothing shows that as another's. Otherwise the error is an *Error, which is Ambiguous or Taken.
func (s *Service) find(ctx context.Context, r Registration) (*found, error) {
	if f, err := s.findKnown(ctx, r); err != nil || f != nil {
		return f, err
	}
	hosts, err := s.client.ListVMHosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("searching for the VM host: %w", err)
	}
	by, err := s.judge(ctx, hosts, r)
	if err != nil {
		return nil, err
	}
	f, err := only(r.Name, by[proven], by[reached])
	if err != nil || (f != nil && f.host.Name == r.Name) {
		return f, err
	}
	for _, other := range by[taken] {
		if f == nil || other.host.Name == r.Name { // A host that is found needs its name alone.
			return nil, r.takenBy(other)
		}
	}
	return f, nil
}

// takenBy is the error for a VM host that has the name or the address, and that nothing proves to be the host.
func (r *Registration) takenBy(other found) error {
	by, on := other.host, "no machine that it knows"
	if by.Host.SystemID != "" {
		on = "machine " + by.Host.SystemID
	}
	return &Error{Kind: Taken, IDs: []int{by.ID},
		Problem: fmt.Sprintf("MAAS has VM host %s (id %d) at %s, on %s, and neither that machine nor its certificate is "+
			"that of %s at %s", by.Name, by.ID, other.power.PowerAddress, on, r.Name, r.PowerAddress),
		Remedy: "if that is another host, give one of the two another name or address; if it is this one, set its power " +
			"address in MAAS; if it is gone for good, delete the VM host in MAAS"}
}

// judge returns the LXD hosts by what shows whether they are the host that r describes.
func (s *Service) judge(ctx context.Context, hosts []maas.VMHost, r Registration) (map[proof][]found, error) {
	hosts = slices.DeleteFunc(hosts, func(h maas.VMHost) bool { return h.Type != maas.VMHostTypeLXD })
	slices.SortStableFunc(hosts, func(a, b maas.VMHost) int { return likelihood(b, r) - likelihood(a, r) })
	by := map[proof][]found{}
	for _, h := range hosts {
		if len(by[proven]) > 0 && likelihood(h, r) == 0 {
			break // The likely ones were asked first; each of the others costs a call.
		}
		power, err := s.power(ctx, h)
		if err != nil {
			return nil, err
		}
		if power != nil {
			f := found{h, *power}
			shows := r.of(f)
			by[shows] = append(by[shows], f)
		}
	}
	return by, nil
}

// findKnown reads the host of the ID, and returns it if it still matches.
func (s *Service) findKnown(ctx context.Context, r Registration) (*found, error) {
	if r.ID == 0 {
		return nil, nil
	}
	host, err := s.client.GetVMHost(ctx, r.ID)
	if errors.Is(err, maas.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading VM host %d: %w", r.ID, err)
	}
	by, err := s.judge(ctx, []maas.VMHost{host}, r)
	if err != nil {
		return nil, err
	}
	return only(r.Name, by[proven], by[reached])
}

// power returns how MAAS reaches a host, or nil if the host is gone.
func (s *Service) power(ctx context.Context, host maas.VMHost) (*maas.VMHostPower, error) {
	power, err := s.client.VMHostPower(ctx, host.ID)
	if errors.Is(err, maas.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the power parameters of VM host %s: %w", host.Name, err)
	}
	return &power, nil
}

// likelihood ranks hosts, so that the right one is asked first.
func likelihood(h maas.VMHost, r Registration) int {
	switch {
	case isShownOn(h, r.SystemID):
		return 2
	case h.Name == r.Name:
		return 1
	}
	return 0
}

// only returns the single host of the first list that is not empty.
func only(name string, lists ...[]found) (*found, error) {
	for _, hosts := range lists {
		switch len(hosts) {
		case 0:
		case 1:
			return &hosts[0], nil
		default:
			ids := list.Each(hosts, func(f found) int { return f.host.ID })
			return nil, &Error{Kind: Ambiguous, IDs: ids,
				Problem: fmt.Sprintf("MAAS has %d VM hosts that may be %s (ids %v)", len(ids), cmp.Or(name, "this one"), ids),
				Remedy: "remove all but one of them in MAAS; keep the one that has machines, as they leave MAAS with their " +
					"VM host"}
		}
	}
	return nil, nil
}

// normal returns host:port of an address that may be a URL or have no port.
func normal(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	return strings.ToLower(lxdnode.WithPort(address))
}

// Check returns, without changing anything, what Ensure would find and change. The host is nil if there is none.
// An *Error is Ambiguous or Taken.
func (s *Service) Check(ctx context.Context, r Registration) (*maas.VMHost, []string, error) {
	f, err := s.find(ctx, r)
	if err != nil || f == nil {
		return nil, nil, err
	}
	_, changes := f.differs(r)
	return &f.host, changes, nil
}

// Ensure registers the host, or updates its registration. A host that MAAS does not have is registered only if its LXD
// has no VM in the project, which vms counts; otherwise the *Error is Occupied. If MAAS has not reached the host, or
// does not know its cores and memory yet, Ensure refreshes it: the result may still lack them (ResourcesKnown), and an
// error that is maas.Unavailable has the reason why MAAS can't reach it.
func (s *Service) Ensure(ctx context.Context, permit maas.Permit, r Registration, vms VMCounter) (Result, error) {
	f, err := s.find(ctx, r)
	if errors.Is(err, maas.Gone) {
		return Result{NoVMHosts: true}, nil
	}
	if err != nil {
		return Result{}, err
	}
	if f == nil {
		return s.create(ctx, permit, r, vms)
	}
	wanted, changes := f.differs(r)
	result := Result{Host: f.host, Changes: changes}
	if len(changes) > 0 {
		if result.Host, err = s.client.UpdateVMHost(ctx, permit, f.host.ID, wanted); err != nil {
			return Result{}, fmt.Errorf("updating %s of VM host %s: %w", strings.Join(changes, ", "), f.host.Name, err)
		}
	}
	return s.refresh(ctx, result)
}

// create registers a host that MAAS does not have.
func (s *Service) create(ctx context.Context, permit maas.Permit, r Registration, vms VMCounter) (Result, error) {
	there, err := vms(ctx, r.Project)
	if err == nil && there > 0 {
		err = &Error{Kind: Occupied,
			Problem: fmt.Sprintf("MAAS does not have VM host %s, and project %s of its LXD has %d VM(s), which MAAS would "+
				"restart, and offer as free machines, if the host was registered now", r.Name, r.Project, there),
			Remedy: "delete them, or move them to another project; if they may be restarted and lost, register the host in " +
				"MAAS by hand"}
	}
	if err != nil {
		return Result{}, err
	}
	host, err := s.client.CreateLXDHost(ctx, permit, r.params())
	if err != nil {
		return Result{}, fmt.Errorf("registering VM host %s: %w", r.Name, err)
	}
	return s.refresh(ctx, Result{Host: host, Created: true})
}

// refresh makes MAAS refresh a host that it has not reached. MAAS updates the figures of a host that it has reached by
// itself, a moment later.
func (s *Service) refresh(ctx context.Context, result Result) (Result, error) {
	if result.Host.Version != "" {
		return result, nil
	}
	host, err := s.client.RefreshVMHost(ctx, result.Host.ID)
	if err != nil {
		return result, fmt.Errorf("VM host %s is registered, but MAAS can't use it: %w", result.Host.Name, err)
	}
	result.Host = host
	return result, nil
}

// Remove deletes a VM host in MAAS; its VMs stay on the host. A host that is gone is no error.
func (s *Service) Remove(ctx context.Context, permit maas.Permit, id int) error {
	if err := s.client.DeleteVMHost(ctx, permit, id); err != nil && !errors.Is(err, maas.NotFound) {
		return fmt.Errorf("removing VM host %d: %w", id, err)
	}
	return nil
}

// OnMachine returns the VM hosts that MAAS shows on a machine; there is at most one for each LXD project.
func OnMachine(hosts []maas.VMHost, systemID string) []maas.VMHost {
	return list.Where(hosts, func(h maas.VMHost) bool { return isShownOn(h, systemID) })
}

func isShownOn(h maas.VMHost, systemID string) bool {
	return systemID != "" && h.Host.SystemID == systemID
}

// Node is a Node with what identifies its VM hosts. MAAS finds a VM host's machine by the MAC addresses that LXD
// reports, and takes the wrong one if two machines share one.
type Node struct {
	SystemID string
	// Name is the Node's, and its VM host's; Others are the names of its cluster's other Nodes. A Node of another
	// cluster may have the same name.
	Name   string
	Others []string
	// Addresses are the Node's own.
	Addresses []string
	// Certificate (PEM) is MAAS's identity towards the LXD on this Node; "" if it is not known.
	Certificate string
}

// OnNode returns the VM hosts that run on a node: those that MAAS shows on it, if they have its name or MAAS reaches
// them there (GET vm-hosts/{id}/ op=parameters); and those of its name that MAAS shows elsewhere, if MAAS reaches them
// there. The node's own certificate proves more than an address. inDoubt are those of which MAAS says both.
func (s *Service) OnNode(ctx context.Context, hosts []maas.VMHost, node Node) (on, inDoubt []maas.VMHost, err error) {
	for _, h := range hosts {
		shown, named := isShownOn(h, node.SystemID), node.Name != "" && h.Name == node.Name
		if shown && named {
			on = append(on, h)
		}
		if shown == named {
			continue // It is, or it is not.
		}
		power, err := s.power(ctx, h)
		if err != nil {
			return nil, nil, err
		}
		isOthers, at := slices.Contains(node.Others, h.Name), power != nil && node.Has(power.PowerAddress)
		switch {
		case power == nil: // It is gone.
		case owns(power.Certificate, node.Certificate, nil), at && !isOthers && (shown || node.Certificate == ""):
			on = append(on, h)
		case at, shown && !isOthers:
			inDoubt = append(inDoubt, h)
		}
	}
	return on, inDoubt, nil
}

// Has reports whether a power address is the node's.
func (n *Node) Has(powerAddress string) bool {
	host, _, _ := net.SplitHostPort(normal(powerAddress))
	return slices.Contains(n.Addresses, host)
}

func (r Registration) params() maas.VMHostParams {
	return maas.VMHostParams{
		Name: r.Name, Zone: r.Zone, Pool: r.ResourcePool,
		VMHostPower: maas.VMHostPower{PowerAddress: r.PowerAddress, Project: r.Project, Certificate: r.Certificate,
			Key: r.Key},
	}
}

// differs returns what has to be changed, as parameters and as words.
func (f *found) differs(r Registration) (maas.VMHostParams, []string) {
	var params maas.VMHostParams
	var changes []string
	change := func(what string, differs bool, apply func()) {
		if differs {
			apply()
			changes = append(changes, what)
		}
	}
	change("name", r.Name != "" && f.host.Name != r.Name, func() { params.Name = r.Name })
	change("power address", normal(f.power.PowerAddress) != normal(r.PowerAddress),
		func() { params.PowerAddress = r.PowerAddress })
	change("certificate", r.Certificate != "" && (!samePEM(f.power.Certificate, r.Certificate) ||
		!samePEM(f.power.Key, r.Key)), func() {
		params.Certificate, params.Key = r.Certificate, r.Key
	})
	change("zone", r.Zone != "" && f.host.Zone.Name != r.Zone, func() { params.Zone = r.Zone })
	change("resource pool", r.ResourcePool != "" && f.host.Pool.Name != r.ResourcePool,
		func() { params.Pool = r.ResourcePool })
	return params, changes
}

// samePEM ignores line endings, which forms change.
func samePEM(a, b string) bool {
	return slices.Equal(strings.Fields(a), strings.Fields(b))
}

// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The names that MAAS accepts (maasserver/models/dnsresource.py and domain.py).
const (
	dnsLabel   = `[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,62}[a-zA-Z0-9])?`
	domainSpec = `(?:` + dnsLabel + `\.)*` + dnsLabel + `\.?`
)

var (
	domainPattern = regexp.MustCompile(`^` + domainSpec + `$`)
	// MAAS accepts any character between the name and the domain.
	fqdnPattern = regexp.MustCompile(`^(` + dnsLabel + `).(` + domainSpec + `)$`)
	// specialNames stand for themselves.
	specialNames = []string{"", "@", "*"}
)

// dnsTarget is the subject of a request for DNS resources: a name and its domain; nil if it names none.
type dnsTarget struct {
	name   string
	domain *domain
}

func (t *dnsTarget) selects(name string, d *domain) bool {
	return t == nil || t.name == name && t.domain == d
}

// dnsTarget reads fqdn, the way of four to name a resource that the provider uses.
func (rq *request) dnsTarget(f form) (*dnsTarget, error) {
	if !f.has("fqdn") {
		return nil, nil
	}
	name, of, err := rq.separateFQDN(f.get("fqdn"))
	if err != nil || of == "" {
		return &dnsTarget{name: name}, err
	}
	d := rq.domainBySpecifier(of)
	if d == nil {
		return nil, notFound("Domain")
	}
	return &dnsTarget{name, d}, rq.need(viewGlobalEntities)
}

// separateFQDN splits at the first dot, unless the whole is a domain of MAAS (separate_fqdn in
// maasserver/models/dnsresource.py; its caller fails to unpack the result then).
func (rq *request) separateFQDN(fqdn string) (name, domainName string, err error) {
	if slices.Contains(specialNames, fqdn) {
		return fqdn, "", nil
	}
	if rq.domainByName(fqdn) != nil {
		return "@", fqdn, nil
	}
	parts := fqdnPattern.FindStringSubmatch(fqdn)
	if parts == nil {
		return "", "", textError(http.StatusInternalServerError, "cannot unpack non-iterable NoneType object")
	}
	return parts[1], parts[2], nil
}

func (rq *request) listDNSResources() (any, error) {
	all, err := rq.query.boolean("all", false)
	if err != nil {
		return nil, err
	}
	target, err := rq.dnsTarget(rq.query)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, d := range rq.db.dns {
		if target.selects(d.name, d.domain) {
			out = append(out, renderDNSResource(d))
		}
	}
	if all {
		out = append(out, rq.pseudoRecords(target)...)
	}
	return out, nil
}

// recordTypes returns the types of the DNS records of addresses; links without an address have none.
func recordTypes(addrs []*address) []string {
	var out []string
	for _, a := range addrs {
		switch {
		case a.ip.Is6():
			out = append(out, "AAAA")
		case a.ip.Is4():
			out = append(out, "A")
		}
	}
	return out
}

// pseudoRecords returns the names of machines and devices, which MAAS shows with id -1 and without addresses
// (ip_addresses in maasserver/api/dnsresources.py).
func (rq *request) pseudoRecords(target *dnsTarget) []any {
	out := []any{}
	for _, m := range rq.nodes() {
		if !target.selects(m.hostname, m.domain) {
			continue
		}
		records := []any{}
		for _, ip := range m.addresses() {
			kind := "A"
			if ip.Is6() {
				kind = "AAAA"
			}
			records = append(records, object{
				"id": -1, "rrtype": kind, "rrdata": ip.String(), "ttl": 30, "system_id": m.systemID, "node_type": m.nodeType(),
			})
		}
		if len(records) == 0 {
			continue
		}
		out = append(out, object{
			"id": -1, "fqdn": m.fqdn(), "address_ttl": nil, "ip_addresses": nil, "resource_records": records,
			"resource_uri": apiRoot + "dnsresources/-1/",
		})
	}
	return out
}

func (rq *request) domainBySpecifier(text string) *domain {
	if d := rq.domainByName(text); d != nil {
		return d
	}
	if id, err := strconv.Atoi(strings.TrimPrefix(text, "id:")); err == nil {
		return rq.domainByID(id)
	}
	return rq.domainByName(strings.TrimPrefix(text, "name:"))
}

func (s *Simulator) domainByID(id int) *domain {
	for _, d := range s.db.domains {
		if d.id == id {
			return d
		}
	}
	return nil
}

func (rq *request) createDNSResource() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	target, err := rq.dnsTarget(rq.data)
	if err != nil {
		return nil, err
	}
	if target == nil || target.domain == nil || target.name == "" {
		errs := formErrors{}
		errs.add("name", "This field is required.")
		errs.add("domain", "This field is required.")
		return nil, errs.err()
	}
	r, errs := &dnsResource{name: target.name, domain: target.domain}, formErrors{}
	if slices.ContainsFunc(rq.db.dns, func(o *dnsResource) bool { return o.name == r.name && o.domain == r.domain }) {
		errs.add("__all__", "Labels must be unique within their zone.")
	}
	r.ttl = rq.ttl(errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	addrs, err := rq.dnsAddresses()
	if err != nil {
		return nil, err
	}
	r.id = rq.db.next("dnsresource")
	rq.db.dns = append(rq.db.dns, r)
	rq.setDNSAddresses(r, addrs)
	return renderDNSResource(r), nil
}

func (rq *request) ttl(errs formErrors) *int {
	if rq.data.get("address_ttl") == "" {
		return nil
	}
	seconds := rq.data.integer("address_ttl", 0, errs)
	if seconds < 0 && len(errs["address_ttl"]) == 0 {
		errs.add("address_ttl", "Ensure this value is greater than or equal to 0.")
	}
	return &seconds
}

// dnsAddresses parses the list of addresses, separated by blanks. Addresses that no user has have no id yet (save in
// maasserver/forms/dnsresource.py).
func (rq *request) dnsAddresses() ([]*address, error) {
	var out []*address
	for _, text := range strings.Fields(rq.data.get("ip_addresses")) {
		ip, err := parseIP(text)
		if err != nil {
			return nil, notAnAddress(text)
		}
		a := rq.addressInUse(ip)
		if a == nil {
			a = &address{ip: ip}
		}
		out = append(out, a)
	}
	return out, nil
}

// setDNSAddresses replaces a resource's addresses. Addresses that no user has become the caller's, "User reserved";
// those that are removed stay reserved all the same.
func (rq *request) setDNSAddresses(r *dnsResource, addrs []*address) {
	r.addrs = nil
	for _, a := range addrs {
		if slices.ContainsFunc(r.addrs, func(other *address) bool { return other == a || a.id == 0 && other.ip == a.ip }) {
			continue
		}
		if a.id == 0 {
			a.id, a.kind, a.subnet, a.user, a.created = rq.db.next("ip"), allocUserReserved, rq.subnetOf(a.ip), rq.user, rq.time.clock.Now().UTC()
			rq.db.addrs = append(rq.db.addrs, a)
		}
		r.addrs = append(r.addrs, a)
	}
}

// freeIfUnused drops a reserved address that no DNS resource names any more. MAAS omitted that before 3.6.1.
func (s *Simulator) freeIfUnused(a *address) {
	if a.kind != allocUserReserved || a.iface != nil || !s.version.AtLeast(3, 6, 1) {
		return
	}
	for _, r := range s.db.dns {
		if slices.Contains(r.addrs, a) {
			return
		}
	}
	s.dropAddress(a)
}

func (rq *request) dnsResourceFor() (*dnsResource, error) {
	id, err := strconv.Atoi(rq.vars[0])
	for _, r := range rq.db.dns {
		if err == nil && r.id == id {
			return r, nil
		}
	}
	return nil, notFound("DNSResource")
}

func (rq *request) readDNSResource() (any, error) {
	r, err := rq.dnsResourceFor()
	if err != nil {
		return nil, err
	}
	if err := rq.need(viewGlobalEntities); err != nil {
		return nil, err
	}
	return renderDNSResource(r), nil
}

func (rq *request) updateDNSResource() (any, error) {
	r, err := rq.dnsResourceFor()
	if err != nil {
		return nil, err
	}
	if err := rq.need(editGlobalEntities); err != nil {
		return nil, err
	}
	addrs, err := rq.dnsAddresses()
	if err != nil {
		return nil, err
	}
	if rq.data.has("ip_addresses") {
		rq.setDNSAddresses(r, addrs)
	}
	return renderDNSResource(r), nil
}

func (rq *request) deleteDNSResource() (any, error) {
	r, err := rq.dnsResourceFor()
	if err != nil {
		return nil, err
	}
	if err := rq.need(editGlobalEntities); err != nil {
		return nil, err
	}
	rq.db.dns = slices.DeleteFunc(rq.db.dns, func(o *dnsResource) bool { return o == r })
	for _, a := range r.addrs {
		rq.freeIfUnused(a)
	}
	return noContent{}, nil
}

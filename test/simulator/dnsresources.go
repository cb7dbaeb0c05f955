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
	dnsLabelPattern = regexp.MustCompile(`^` + dnsLabel + `$`)
	domainPattern   = regexp.MustCompile(`^` + domainSpec + `$`)
	// MAAS accepts any character between the name and the domain.
	fqdnPattern = regexp.MustCompile(`^(` + dnsLabel + `).(` + domainSpec + `)$`)
	// specialNames stand for themselves.
	specialNames = []string{"", "@", "*"}
)

// dnsTarget is the subject of a request for DNS resources: a name and a domain, each nil if it is not given.
type dnsTarget struct {
	name   *string
	domain *domain
}

func (t dnsTarget) selects(name string, d *domain) bool {
	return (t.name == nil || *t.name == name) && (t.domain == nil || t.domain == d)
}

// dnsTarget reads name and domain, or fqdn if neither was sent.
func (rq *request) dnsTarget(f form) (dnsTarget, error) {
	var target dnsTarget
	domainName, hasDomain := f.get("domain"), f.has("domain")
	if f.has("name") {
		name := f.get("name")
		target.name = &name
	}
	if target.name == nil && !hasDomain && f.has("fqdn") {
		name, of, err := rq.separateFQDN(f.get("fqdn"))
		if err != nil {
			return target, err
		}
		target.name, domainName, hasDomain = &name, of, of != ""
	}
	if hasDomain {
		if target.domain = rq.domainBySpecifier(domainName); target.domain == nil {
			return target, notFound("Domain")
		}
		if err := rq.need(viewGlobalEntities); err != nil {
			return target, err
		}
	}
	return target, nil
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
		// MAAS compares rrtype with its records of other kinds, which don't exist here.
		if target.selects(d.name, d.domain) && !rq.query.has("rrtype") {
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

// pseudoRecords returns the names of machines and devices, which MAAS shows with id -1.
func (rq *request) pseudoRecords(target dnsTarget) []any {
	out, wanted := []any{}, strings.ToUpper(rq.query.get("rrtype"))
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
			if rq.query.has("rrtype") && kind != wanted {
				continue
			}
			records = append(records, object{
				"id": -1, "rrtype": kind, "rrdata": ip.String(), "ttl": 30, "system_id": m.systemID, "node_type": m.nodeType(),
			})
		}
		if len(records) == 0 {
			continue
		}
		out = append(out, object{
			"id": -1, "fqdn": m.fqdn(), "address_ttl": nil, "ip_addresses": []any{}, "resource_records": records,
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
	errs, r := formErrors{}, &dnsResource{domain: target.domain}
	if target.name != nil {
		r.name = *target.name
	}
	if r.name == "" {
		errs.add("name", "This field is required.")
	}
	if r.domain == nil {
		errs.add("domain", "This field is required.")
	}
	if r.ttl, err = rq.dnsForm(r, errs); err != nil {
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

// dnsForm adds the errors of the form of DNS resources to errs; it reads the TTL. Only a name of addresses must be one
// label (clean in maasserver/forms/dnsresource.py and models/dnsresource.py).
func (rq *request) dnsForm(r *dnsResource, errs formErrors) (*int, error) {
	hasAddresses := rq.data.has("ip_addresses") || len(r.addrs) > 0
	if hasAddresses && !slices.Contains(specialNames, r.name) && !dnsLabelPattern.MatchString(r.name) {
		errs.add("__all__", "Invalid dnsresource name: %s.", r.name)
	}
	if slices.ContainsFunc(rq.db.dns, func(o *dnsResource) bool { return o.id != r.id && o.name == r.name && o.domain == r.domain }) {
		errs.add("__all__", "Labels must be unique within their zone.")
	}
	ttl := rq.ttl(errs)
	return ttl, errs.err()
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

// dnsAddresses parses the list of addresses, separated by blanks: by value, or by the id of one that MAAS knows.
// Addresses that no user has have no id yet. MAAS does not check an id, and fails if it is wrong (save in
// maasserver/forms/dnsresource.py).
func (rq *request) dnsAddresses() ([]*address, error) {
	var out []*address
	for _, text := range strings.Fields(rq.data.get("ip_addresses")) {
		if id, err := strconv.Atoi(text); err == nil && id >= 0 {
			at := slices.IndexFunc(rq.db.addrs, func(a *address) bool { return a.id == id })
			if at < 0 {
				return nil, textError(http.StatusInternalServerError, "insert or update on table \"maasserver_dnsresource_ip_addresses\" violates foreign key constraint")
			}
			out = append(out, rq.db.addrs[at])
			continue
		}
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
	target, err := rq.dnsTarget(rq.data)
	if err != nil {
		return nil, err
	}
	changed := *r
	if target.name != nil && *target.name != "" {
		changed.name = *target.name
	}
	if target.domain != nil {
		changed.domain = target.domain
	}
	ttl, err := rq.dnsForm(&changed, formErrors{})
	if err != nil {
		return nil, err
	}
	addrs, err := rq.dnsAddresses()
	if err != nil {
		return nil, err
	}
	r.name, r.domain = changed.name, changed.domain
	if rq.data.has("address_ttl") {
		r.ttl = ttl
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

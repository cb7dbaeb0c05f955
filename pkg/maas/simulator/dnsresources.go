// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strconv"
	"strings"
)

func (rq *request) listDNSResources() (any, error) {
	name, domainName := rq.query.get("name"), rq.query.get("domain")
	if fqdn := rq.query.get("fqdn"); fqdn != "" {
		name, domainName = rq.splitFQDN(fqdn)
	}
	if domainName != "" && rq.domainBySpecifier(domainName) == nil {
		return nil, notFound("Domain")
	}
	all, err := rq.query.boolean("all", false)
	if err != nil {
		return nil, err
	}
	kind := strings.ToUpper(rq.query.get("rrtype"))
	out := []any{}
	for _, d := range rq.db.dns {
		if rq.selectsName(d.name, d.domain, name, domainName) && (kind == "" || slices.Contains(recordTypes(d.addrs), kind)) {
			out = append(out, renderDNSResource(d))
		}
	}
	if all {
		out = append(out, rq.pseudoRecords(name, domainName)...)
	}
	return out, nil
}

func (rq *request) selectsName(name string, d *domain, wantName, wantDomain string) bool {
	return (wantName == "" || wantName == name) && (wantDomain == "" || rq.domainBySpecifier(wantDomain) == d)
}

// recordTypes are the types of the DNS records of those that are addresses, and not links without any.
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

// pseudoRecords are the machines' names, which MAAS shows with id -1.
func (rq *request) pseudoRecords(name, domainName string) []any {
	out := []any{}
	for _, m := range rq.db.machines {
		if len(m.addresses()) == 0 || !rq.selectsName(m.hostname, m.domain, name, domainName) {
			continue
		}
		records := []any{}
		for _, ip := range m.addresses() {
			kind := "A"
			if ip.Is6() {
				kind = "AAAA"
			}
			records = append(records, object{
				"id": -1, "rrtype": kind, "rrdata": ip.String(), "ttl": 30, "system_id": m.systemID, "node_type": 0,
			})
		}
		out = append(out, object{
			"id": -1, "fqdn": m.fqdn(), "address_ttl": nil, "ip_addresses": []any{}, "resource_records": records,
			"resource_uri": apiRoot + "dnsresources/-1/",
		})
	}
	return out
}

// splitFQDN separates the name from the longest domain of MAAS that it ends in.
func (rq *request) splitFQDN(fqdn string) (name, domainName string) {
	fqdn = strings.TrimSuffix(fqdn, ".")
	best := ""
	for _, d := range rq.db.domains {
		if (fqdn == d.name || strings.HasSuffix(fqdn, "."+d.name)) && len(d.name) > len(best) {
			best = d.name
		}
	}
	if best == "" {
		name, domainName, _ = strings.Cut(fqdn, ".")
		return name, domainName
	}
	if fqdn == best {
		return "@", best
	}
	return strings.TrimSuffix(fqdn, "."+best), best
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
	if err := rq.requireAdmin(); err != nil {
		return nil, err
	}
	name, domainName := rq.data.get("name"), rq.data.get("domain")
	if fqdn := rq.data.get("fqdn"); fqdn != "" && name == "" && domainName == "" {
		name, domainName = rq.splitFQDN(fqdn)
	}
	errs := formErrors{}
	if name == "" {
		errs.add("name", "This field is required.")
	}
	if domainName == "" {
		errs.add("domain", "This field is required.")
		return nil, errs.err()
	}
	d := rq.domainBySpecifier(domainName)
	if d == nil {
		return nil, notFound("Domain")
	}
	if name != "@" && name != "" && !validDNSName(name) {
		errs.add("name", "Invalid hostname: Label contains disallowed characters: '%s'.", name)
	}
	if slices.ContainsFunc(rq.db.dns, func(r *dnsResource) bool { return r.name == name && r.domain == d }) {
		errs.add("__all__", "Labels must be unique within their zone.")
	}
	ttl := rq.ttl(errs)
	addrs := rq.dnsAddresses(errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	r := &dnsResource{id: rq.db.next("dnsresource"), name: name, domain: d, ttl: ttl}
	rq.db.dns = append(rq.db.dns, r)
	rq.setDNSAddresses(r, addrs)
	return renderDNSResource(r), nil
}

func validDNSName(name string) bool {
	for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
		if len(label) > 63 || !hostLabel.MatchString(strings.ReplaceAll(label, "_", "a")) {
			return false
		}
	}
	return true
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

// dnsAddresses reads the list of addresses: by value, or by the id of one that MAAS knows. Those that nobody has have no id yet.
func (rq *request) dnsAddresses(errs formErrors) []*address {
	var out []*address
	for _, text := range splitList(strings.Join(rq.data.list("ip_addresses"), " ")) {
		ip, err := parseIP(text)
		if id, notID := strconv.Atoi(text); err != nil && notID == nil {
			if at := slices.IndexFunc(rq.db.addrs, func(a *address) bool { return a.id == id }); at >= 0 {
				out = append(out, rq.db.addrs[at])
				continue
			}
		}
		if err != nil {
			errs.add("ip_addresses", "%s: Enter a valid IPv4 or IPv6 address.", text)
			continue
		}
		a := rq.addressInUse(ip)
		if a == nil {
			a = &address{ip: ip}
		}
		out = append(out, a)
	}
	return out
}

// setDNSAddresses replaces a resource's addresses. Addresses that nobody has become the caller's, "User reserved"; those
// that are let go stay reserved all the same.
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

// freeIfUnused drops a reserved address that no DNS resource names any more. MAAS forgot that before 3.6.1.
func (s *Simulator) freeIfUnused(a *address) {
	if a.kind != allocUserReserved || a.iface != nil || !s.version.since(6, 1) {
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
	return renderDNSResource(r), nil
}

func (rq *request) updateDNSResource() (any, error) {
	r, err := rq.dnsResourceFor()
	if err != nil {
		return nil, err
	}
	if !rq.user.admin {
		return nil, forbidden("")
	}
	errs, name, d := formErrors{}, r.name, r.domain
	if fqdn := rq.data.get("fqdn"); fqdn != "" {
		var domainName string
		name, domainName = rq.splitFQDN(fqdn)
		if d = rq.domainBySpecifier(domainName); d == nil {
			return nil, notFound("Domain")
		}
	}
	if text := rq.data.get("name"); text != "" {
		name = text
	}
	if text := rq.data.get("domain"); text != "" {
		if d = rq.domainBySpecifier(text); d == nil {
			return nil, notFound("Domain")
		}
	}
	if slices.ContainsFunc(rq.db.dns, func(o *dnsResource) bool { return o != r && o.name == name && o.domain == d }) {
		errs.add("__all__", "Labels must be unique within their zone.")
	}
	ttl := rq.ttl(errs)
	addrs := rq.dnsAddresses(errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	r.name, r.domain = name, d
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
	if !rq.user.admin {
		return nil, forbidden("")
	}
	rq.db.dns = slices.DeleteFunc(rq.db.dns, func(o *dnsResource) bool { return o == r })
	for _, a := range r.addrs {
		rq.freeIfUnused(a)
	}
	return noContent{}, nil
}

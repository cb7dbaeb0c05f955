// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strings"
)

func (rq *request) listDomains() (any, error) {
	out := []any{}
	for _, d := range rq.db.domains {
		out = append(out, rq.renderDomain(d))
	}
	return out, nil
}

func (rq *request) domainFor() (*domain, error) {
	if d := rq.domainBySpecifier(rq.vars[0]); d != nil {
		return d, nil
	}
	return nil, notFound("Domain")
}

func (rq *request) readDomain() (any, error) {
	d, err := rq.domainFor()
	if err != nil {
		return nil, err
	}
	if err := rq.need(viewGlobalEntities); err != nil {
		return nil, err
	}
	return rq.renderDomain(d), nil
}

func (rq *request) createDomain() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	d := &domain{authoritative: true}
	if err := rq.editDomain(d); err != nil {
		return nil, err
	}
	d.id = rq.db.next("domain")
	rq.db.domains = append(rq.db.domains, d)
	return rq.renderDomain(d), nil
}

func (rq *request) editDomain(d *domain) error {
	errs := formErrors{}
	name := orDefault(rq.data.get("name"), d.name)
	switch other := rq.domainByName(name); {
	case name == "":
		errs.add("name", "This field is required.")
	case !domainPattern.MatchString(name):
		errs.add("name", "Invalid domain name: %s.", name)
	case other != nil && other != d:
		errs.add("name", "Domain with this Name already exists.")
	}
	authoritative := rq.data.checkbox("authoritative", d.authoritative)
	if text := rq.data.get("ttl"); text != "" {
		seconds := rq.data.integer("ttl", 0, errs)
		d.ttl = &seconds
	}
	if err := errs.err(); err != nil {
		return err
	}
	d.name, d.authoritative = strings.TrimSuffix(name, "."), authoritative
	return nil
}

func (rq *request) updateDomain() (any, error) {
	d, err := rq.domainFor()
	if err != nil {
		return nil, err
	}
	if err := rq.need(editGlobalEntities); err != nil {
		return nil, err
	}
	if err := rq.editDomain(d); err != nil {
		return nil, err
	}
	return rq.renderDomain(d), nil
}

func (rq *request) deleteDomain() (any, error) {
	d, err := rq.domainFor()
	if err != nil {
		return nil, err
	}
	switch {
	case !rq.may(rq.user, editGlobalEntities):
		return nil, forbidden("")
	case d.isDefault:
		return nil, badRequest("This domain is the default domain, it cannot be deleted.")
	case slices.ContainsFunc(rq.db.dns, func(r *dnsResource) bool { return r.domain == d }),
		slices.ContainsFunc(rq.nodes(), func(m *machine) bool { return m.domain == d }):
		return nil, badRequest("Cannot delete domain %s: it has resources.", d.name)
	}
	rq.db.domains = slices.DeleteFunc(rq.db.domains, func(o *domain) bool { return o == d })
	return noContent{}, nil
}

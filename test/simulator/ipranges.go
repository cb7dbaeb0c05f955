// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strconv"
)

func renderRange(r *ipRange) object {
	return object{
		"id": r.id, "type": r.kind, "start_ip": r.start.String(), "end_ip": r.end.String(), "comment": r.comment,
		"subnet": renderSubnet(r.subnet), "user": renderUser(r.user),
		"resource_uri": fmt.Sprintf("%sipranges/%d/", apiRoot, r.id),
	}
}

func (rq *request) listRanges() (any, error) {
	out := []any{}
	for _, r := range rq.db.ranges {
		out = append(out, renderRange(r))
	}
	return out, nil
}

func (rq *request) rangeFor() (*ipRange, error) {
	id, err := strconv.Atoi(rq.vars[0])
	for _, r := range rq.db.ranges {
		if err == nil && r.id == id {
			return r, nil
		}
	}
	return nil, notFound("IPRange")
}

func (rq *request) readRange() (any, error) {
	r, err := rq.rangeFor()
	if err != nil {
		return nil, err
	}
	return renderRange(r), nil
}

func (rq *request) createRange() (any, error) {
	kind := rq.data.get("type")
	if kind == rangeDynamic && !rq.may(rq.user, editGlobalEntities) {
		return nil, forbidden("")
	}
	r := &ipRange{kind: kind, user: rq.user}
	errs := formErrors{}
	if kind == "" {
		errs.add("type", "This field is required.")
	} else if kind != rangeDynamic && kind != rangeReserved {
		errs.add("type", "Select a valid choice. %s is not one of the available choices.", kind)
	}
	for _, key := range []string{"start_ip", "end_ip"} {
		if rq.data.get(key) == "" {
			errs.add(key, "This field is required.")
		}
	}
	if err := rq.editRange(r, errs); err != nil {
		return nil, err
	}
	r.id = rq.db.next("iprange")
	rq.db.ranges = append(rq.db.ranges, r)
	return renderRange(r), nil
}

// editRange sets the form's fields, all or nothing.
func (rq *request) editRange(r *ipRange, errs formErrors) error {
	changed := *r
	var err error
	if text := rq.data.get("start_ip"); text != "" {
		if changed.start, err = parseIP(text); err != nil {
			errs.add("start_ip", "Enter a valid IPv4 or IPv6 address.")
		}
	}
	if text := rq.data.get("end_ip"); text != "" {
		if changed.end, err = parseIP(text); err != nil {
			errs.add("end_ip", "Enter a valid IPv4 or IPv6 address.")
		}
	}
	if text := rq.data.get("subnet"); text != "" {
		if changed.subnet = rq.subnetBySpecifier(text); changed.subnet == nil {
			errs.add("subnet", noSuchChoice)
		}
	} else if changed.subnet == nil && changed.start.IsValid() {
		changed.subnet = rq.subnetOf(changed.start)
	}
	if rq.data.has("comment") {
		changed.comment = rq.data.get("comment")
	}
	if err := errs.err(); err != nil {
		return err
	}
	if err := rq.checkRange(r, &changed); err != nil {
		return err
	}
	*r = changed
	return nil
}

func (rq *request) checkRange(old, r *ipRange) error {
	switch {
	case r.subnet == nil:
		return invalidField("subnet", "This field is required.")
	case !r.subnet.cidr.Contains(r.start):
		return invalidField("start_ip", "IP addresses must be within subnet: %s.", r.subnet.cidr)
	case !r.subnet.cidr.Contains(r.end):
		return invalidField("end_ip", "IP addresses must be within subnet: %s.", r.subnet.cidr)
	case r.end.Less(r.start):
		return invalidField("end_ip", "End IP address must not be less than Start IP address.")
	}
	for _, other := range rq.db.ranges {
		if other != old && other.subnet == r.subnet && !other.end.Less(r.start) && !r.end.Less(other.start) {
			return invalidField("__all__", "Requested %s range conflicts with an existing range.", r.kind)
		}
	}
	if r.kind == rangeDynamic && slices.ContainsFunc(rq.db.addrs, func(a *address) bool {
		return a.ip.IsValid() && r.contains(a.ip) && a.kind != allocDiscovered
	}) {
		return invalidField("__all__", "Requested dynamic range conflicts with an existing IP address.")
	}
	return nil
}

func (rq *request) changeableRange() (*ipRange, error) {
	r, err := rq.rangeFor()
	if err != nil {
		return nil, err
	}
	if !rq.may(rq.user, editGlobalEntities) && r.user != rq.user {
		return nil, forbidden("Unable to modify IP range. You don't own the IP range.")
	}
	return r, nil
}

func (rq *request) updateRange() (any, error) {
	r, err := rq.changeableRange()
	if err != nil {
		return nil, err
	}
	if err := rq.editRange(r, formErrors{}); err != nil {
		return nil, err
	}
	return renderRange(r), nil
}

func (rq *request) deleteRange() (any, error) {
	r, err := rq.changeableRange()
	if err != nil {
		return nil, err
	}
	rq.db.ranges = slices.DeleteFunc(rq.db.ranges, func(o *ipRange) bool { return o == r })
	return noContent{}, nil
}

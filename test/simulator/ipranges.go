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

// createRange makes a range of addresses that MAAS does not give.
func (rq *request) createRange() (any, error) {
	r := &ipRange{kind: rq.data.get("type"), user: rq.user}
	var err, err2 error
	r.start, err = parseIP(rq.data.get("start_ip"))
	if r.end, err2 = parseIP(rq.data.get("end_ip")); err != nil || err2 != nil {
		return nil, invalidField("start_ip", "Enter a valid IPv4 or IPv6 address.")
	}
	if r.subnet = rq.subnetOf(r.start); r.subnet == nil {
		return nil, invalidField("subnet", "This field is required.")
	}
	r.id = rq.db.next("iprange")
	rq.db.ranges = append(rq.db.ranges, r)
	return renderRange(r), nil
}

func (rq *request) deleteRange() (any, error) {
	r, err := rq.rangeFor()
	if err != nil {
		return nil, err
	}
	if !rq.may(rq.user, editGlobalEntities) && r.user != rq.user {
		return nil, forbidden("Unable to modify IP range. You don't own the IP range.")
	}
	rq.db.ranges = slices.DeleteFunc(rq.db.ranges, func(o *ipRange) bool { return o == r })
	return noContent{}, nil
}

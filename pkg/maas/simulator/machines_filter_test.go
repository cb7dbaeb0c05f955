// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMachineFilters(t *testing.T) {
	b := newBed(t)
	vm := b.composeVM("vm1")
	if got := b.do(post, "machines/"+vm+"/", "op", "deploy", "agent_name", "me"); got.status != http.StatusOK {
		t.Fatal(got.body)
	}
	tests := map[string][]string{
		"":                                      {"big", "small", "host", "vm1"},
		"hostname=big":                          {"big"},
		"hostname=big&hostname=small":           {"big", "small"},
		"not_hostname=big":                      {"small", "host", "vm1"},
		"zone=zone-a":                           {"big", "host"},
		"zone=zone-a&zone=zone-b":               {"big", "small", "host"},
		"not_in_zone=zone-a":                    {"small", "vm1"},
		"pool=capi":                             {"big", "host", "vm1"},
		"not_in_pool=capi":                      {"small"},
		"status=ready":                          {"big", "small"},
		"status=deployed&status=deploying":      {"host", "vm1"},
		"not_status=ready":                      {"host", "vm1"},
		"tags=fast":                             {"big"},
		"not_tags=fast":                         {"small", "host", "vm1"},
		"cpu_count=8":                           {"big", "host"},
		"mem=8192":                              {"big", "small", "host"},
		"agent_name=me":                         {"vm1"},
		"agent_name=m":                          {},
		"not_agent_name=me":                     {"big", "small", "host"},
		"pod=host":                              {"vm1"},
		"not_pod=host":                          {"big", "small", "host"},
		"pod_type=lxd":                          {"vm1"},
		"owner=admin":                           {"host", "vm1"},
		"not_owner=admin":                       {"big", "small"},
		"power_state=on":                        {"host"},
		"arch=amd64":                            {"big", "small", "host", "vm1"},
		"arch=amd64/generic":                    {"big", "small", "host", "vm1"},
		"subnets=10.10.0.0/24&hostname=big":     {"big"},
		"fabrics=fabric-0&hostname=big":         {"big"},
		"domain=maas.test&hostname=big":         {"big"},
		"domain=nosuch":                         {},
		"storage=root:150":                      {"big"},
		"interfaces=any:subnet_cidr=10.9.0.0/8": {},
		"zone=zone-a&status=ready&tags=fast":    {"big"},
	}
	for query, want := range tests {
		t.Run(query, func(t *testing.T) {
			form, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			answered, err := b.send(adminKey, get, "machines/", form)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, m := range answered.list(t) {
				got = append(got, m["hostname"].(string))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFiltersThatAreRefused(t *testing.T) {
	b := newBed(t)
	for _, query := range []string{
		"bogus=1", "status=nope", "status=4", "zone=nosuch", "pool=nosuch", "tags=nosuch", "mem=much", "cpu_count=x",
		"arch=pdp11", "owner=nobody", "subnets=10.99.0.0/24", "storage=lots", "interfaces=a:color=red", "mac_address=x",
		"power_state=dim",
	} {
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.send(adminKey, get, "machines/", form)
		if err != nil {
			t.Fatal(err)
		}
		if got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, got.status)
		}
	}
}

func TestPlainUsersSeeWhatIsFreeOrTheirs(t *testing.T) {
	b := newBed(t)
	id := b.named("big").SystemID
	b.do(post, "machines/", "op", "allocate", "system_id", id).object(t)
	got, err := b.send(plainKey, get, "machines/", nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range got.list(t) {
		names = append(names, m["hostname"].(string))
	}
	if !slices.Equal(names, []string{"small"}) {
		t.Errorf("a plain user sees %v", names)
	}
	for _, op := range []string{"release", "deploy", "power_off"} {
		if got, err := b.send(plainKey, post, "machines/"+id+"/", url.Values{"op": {op}}); err != nil || got.status != http.StatusForbidden {
			t.Errorf("%s of another user's machine: %d, %v", op, got.status, err)
		}
	}
}

func TestAllocatePicksTheCheapest(t *testing.T) {
	b := newBed(t)
	for _, want := range []string{"small", "big"} {
		got := b.do(post, "machines/", "op", "allocate", "not_pod_type", "lxd", "mem", "8000").object(t)
		if got["hostname"] != want {
			t.Errorf("allocated %v, want %s", got["hostname"], want)
		}
	}
	if got := b.do(post, "machines/", "op", "allocate", "not_pod_type", "lxd", "mem", "8000"); got.status != http.StatusConflict {
		t.Errorf("nothing is left, but: %d %s", got.status, got.body)
	}
}

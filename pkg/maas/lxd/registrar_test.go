// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	registeredMark = "capmaas/owner/cp-0"
	// The most calls to MAAS that a VM with one card may cost.
	callsToRegister, callsToUnregister = 3, 2
)

var aTest = maas.Unrecorded("a test")

// registry is a MAAS, and a registrar there.
type registry struct {
	fuzzedRegion
	*registrar
	t *testing.T
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	users := `users: [{name: admin, admin: true, keys: ["admin:token:secret"]}, {name: other, admin: true, keys: ["other:token:secret"]}]`
	region := newRegion(t, strings.NewReplacer(
		`users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]`, users+"\nzones: [{name: zone-a}, {name: zone-b}]",
		"dhcp: true}]", "dhcp: true}, {cidr: 10.78.0.0/24}]", "vm_hosts: [{name: host,", "vm_hosts: [{name: host, zone: zone-a,",
	).Replace(fuzzRegion))
	return &registry{region, &registrar{client: region.inventory.Client()}, t}
}

// as is the registrar of another user.
func (r *registry) as(user string) *registrar {
	r.t.Helper()
	server := httptest.NewServer(r.sim.Handler())
	r.t.Cleanup(server.Close)
	client := simtest.Client(r.t, server.URL+"/MAAS", user+":token:secret")
	return &registrar{client: client}
}

// cp0 is a device with one card, whose address MAAS chooses.
func cp0() registration {
	return registration{
		Hostname: "cp-0-owner", Mark: registeredMark, Annotations: map[string]string{"capmaas-owner": "owner"},
		Cards: []card{{MAC: "00:16:3e:00:00:01", Subnet: netip.MustParsePrefix("10.77.0.0/24")}},
	}
}

// calls returns how many requests MAAS gets while do runs.
func (r *registry) calls(do func()) int {
	count := func() (all int) {
		for _, n := range r.sim.Calls().ByKey {
			all += n
		}
		return all
	}
	before := count()
	do()
	return count() - before
}

func (r *registry) register(want registration) *maas.Device {
	r.t.Helper()
	device, err := r.Register(r.t.Context(), aTest, want)
	if err != nil {
		r.t.Fatal(err)
	}
	return device
}

// only returns the only device that MAAS has.
func (r *registry) only() *maas.Device {
	r.t.Helper()
	all, err := r.client.ListDevices(r.t.Context(), maas.DeviceFilter{})
	if err != nil || len(all) != 1 {
		r.t.Fatalf("there are the devices %v, %v", all, err)
	}
	return all[0]
}

func TestADeviceIsRegisteredInFewCalls(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	var device *maas.Device
	if n := r.calls(func() { device = r.register(cp0()) }); n != callsToRegister {
		t.Errorf("it took %d calls, want %d", n, callsToRegister)
	}
	now := r.only()
	if now.SystemID != device.SystemID || now.Owner != "admin" || now.Description != registeredMark || len(now.IPAddresses) != 1 ||
		now.WorkloadAnnotations["capmaas-owner"] != "owner" || !cp0().Cards[0].Subnet.Contains(netip.MustParseAddr(now.IPAddresses[0])) {
		t.Errorf("the device is %+v", now)
	}
	if again := r.register(cp0()); again.SystemID != device.SystemID || !cmp.Equal(r.only().IPAddresses, now.IPAddresses) {
		t.Errorf("again, it is %+v", again)
	}
	n := r.calls(func() {
		if err := r.Unregister(t.Context(), aTest, now.AsMachine(), registeredMark); err != nil {
			t.Error(err)
		}
	})
	if left, err := r.client.ListDevices(t.Context(), maas.DeviceFilter{}); err != nil || len(left) != 0 || n != callsToUnregister {
		t.Errorf("after %d calls (want %d) there are %v, %v", n, callsToUnregister, left, err)
	}
	if err := r.Unregister(t.Context(), aTest, now.AsMachine(), registeredMark); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestADeviceHasTheAddressOfChoice(t *testing.T) {
	t.Parallel()
	r, want := newRegistry(t), cp0()
	want.Cards[0].Address = netip.MustParseAddr("10.77.0.40")
	want.Cards = append(want.Cards, card{MAC: "00:16:3e:00:00:02"})
	r.register(want)
	if now := r.only(); !cmp.Equal(now.IPAddresses, []string{"10.77.0.40"}) || len(now.Interfaces) != 2 {
		t.Errorf("the device is %+v", now)
	}
}

// A device was made for a host that did not get the VM. The next host is in another zone, or its VMs in another subnet: the
// VM has no address besides that which it is told. Nor does it keep a device that has another name.
func TestADeviceIsMadeAnewForAnotherHost(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*registration){
		"zone":    func(want *registration) { want.Zone = "zone-b" },
		"subnet":  func(want *registration) { want.Cards[0].Subnet = netip.MustParsePrefix("10.78.0.0/24") },
		"address": func(want *registration) { want.Cards[0].Address = netip.MustParseAddr("10.77.0.41") },
		"name":    func(want *registration) { want.Hostname = "cp-0-renamed" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, want := newRegistry(t), cp0()
			want.Zone = "zone-a"
			first := r.register(want)
			change(&want)
			again := r.register(want)
			now := r.only()
			if again.SystemID == first.SystemID || now.Hostname != want.Hostname || now.Zone.Name != want.Zone || len(now.IPAddresses) != 1 ||
				!want.Cards[0].mayHave(netip.MustParseAddr(now.IPAddresses[0])) {
				t.Errorf("the device is %+v", now)
			}
		})
	}
}

// At each call the request or the answer is lost. The next try goes on with what is there: one device, one address.
func TestALostAnswerMakesNoSecondDevice(t *testing.T) {
	t.Parallel()
	steps := map[string]simulator.Fault{
		"the device":      {Method: http.MethodPost, Endpoint: "devices/"},
		"the address":     {Op: "link_subnet"},
		"the annotations": {Op: "set_workload_annotations"},
	}
	for name, at := range steps {
		for when, lose := range map[string]func(*simulator.Fault){
			"before":  func(f *simulator.Fault) { f.DropBefore = true },
			"after":   func(f *simulator.Fault) { f.DropAfter = true },
			"refused": func(f *simulator.Fault) { f.Status = http.StatusServiceUnavailable },
			"late":    func(f *simulator.Fault) { f.Late, f.Status = true, http.StatusGatewayTimeout },
			"garbage": func(f *simulator.Fault) { f.Garbage = true },
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				r := newRegistry(t)
				fault := at
				fault.First = 1
				lose(&fault)
				if _, err := r.sim.AddFault(fault); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Register(t.Context(), aTest, cp0()); err == nil {
					t.Fatal("the fault had no effect")
				}
				device := r.register(cp0())
				now := r.only()
				if now.SystemID != device.SystemID || len(now.IPAddresses) != 1 || !hasAll(now.WorkloadAnnotations, cp0().Annotations) {
					t.Errorf("the device is %+v", now)
				}
			})
		}
	}
}

// What has the name or an address, and is not ours, is named and not changed.
func TestWhatIsNotOursIsNotRegistered(t *testing.T) {
	t.Parallel()
	devices := func(as string, change func(*registration)) func(*registry) {
		return func(r *registry) {
			theirs := cp0()
			change(&theirs)
			if _, err := r.as(as).Register(r.t.Context(), aTest, theirs); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		there func(*registry)
		shown bool // MAAS shows a device of the name
	}{
		"a device of another user with our mark":         {devices("other", func(*registration) {}), true},
		"a device of our user with another mark":         {devices("admin", func(d *registration) { d.Mark = "capmaas/owner/cp-1" }), true},
		"a device without a mark":                        {devices("admin", func(d *registration) { d.Mark = "" }), true},
		"a device with another MAC address":              {devices("admin", func(d *registration) { d.Cards[0].MAC = "00:16:3e:00:00:09" }), true},
		"a device of another user with our MAC address":  {devices("other", func(d *registration) { d.Hostname = "other" }), true},
		"a device with our MAC address and another mark": {devices("admin", func(d *registration) { d.Hostname, d.Mark = "other", "capmaas/owner/cp-1" }), true},
		"a machine": {func(r *registry) {
			simtest.Enlist(r.t, r.sim, "admin:token:secret", cp0().Hostname, "00:16:3e:00:00:09", nil)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			tc.there(r)
			before := r.sim.State()
			_, err := r.Register(t.Context(), aTest, cp0())
			var taken *NameTakenError
			if !errors.As(err, &taken) || (taken.SystemID != "") != tc.shown {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(before, r.sim.State()); diff != "" {
				t.Errorf("MAAS changed (-before +after):\n%s", diff)
			}
			if !tc.shown {
				return
			}
			if theirs := r.only(); theirs.Description != registeredMark {
				if err := r.Unregister(t.Context(), aTest, theirs.AsMachine(), registeredMark); !errors.As(err, &taken) {
					t.Errorf("deleting it: %v", err)
				}
				r.only()
			}
		})
	}
}

// MAAS answers 404 for an address that something else has, and 409 for one that is reserved for something else.
func TestAnAddressOfChoiceThatIsTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault *simulator.Fault
		taken bool
	}{
		"by another device":      {nil, true},
		"by a reservation":       {&simulator.Fault{Op: "link_subnet", Status: http.StatusConflict, Body: "already reserved"}, true},
		"but the device is gone": {&simulator.Fault{Endpoint: "nodes/{id}/interfaces/{iface}/", Status: http.StatusNotFound, Body: "Not Found"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, first, want := newRegistry(t), cp0(), cp0()
			first.Hostname, first.Cards[0].MAC = "first", "00:16:3e:00:00:09"
			first.Cards[0].Address = netip.MustParseAddr("10.77.0.40")
			if tc.fault == nil {
				r.register(first)
			} else if _, err := r.sim.AddFault(*tc.fault); err != nil {
				t.Fatal(err)
			}
			if !tc.taken { // It is gone meanwhile.
				if _, err := r.sim.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "devices/{id}/", Status: http.StatusNotFound, Body: "Not Found"}); err != nil {
					t.Fatal(err)
				}
			}
			want.Cards[0].Address = first.Cards[0].Address
			_, err := r.Register(t.Context(), aTest, want)
			var other *OtherAddressError
			if is := errors.As(err, &other) && other.Taken != ""; err == nil || is != tc.taken {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// Nothing is concluded from what MAAS says and does not keep.
func TestAMAASThatLiesIsFoundOut(t *testing.T) {
	t.Parallel()
	lie := func(f simulator.Fault, body string) simulator.Fault {
		f.Status, f.Body = http.StatusOK, body
		return f
	}
	device := func(fields string) string {
		return `{"system_id": "abc123", "owner": "admin", ` + fields + `}`
	}
	made := simulator.Fault{Method: http.MethodPost, Endpoint: "devices/"}
	for name, fault := range map[string]simulator.Fault{
		"another name":                 lie(made, device(`"hostname": "x", "description": "`+registeredMark+`", "interface_set": [{"id": 1, "mac_address": "00:16:3e:00:00:01"}]`)),
		"another mark":                 lie(made, device(`"hostname": "cp-0-owner", "description": "x", "interface_set": [{"id": 1, "mac_address": "00:16:3e:00:00:01"}]`)),
		"another card":                 lie(made, device(`"hostname": "cp-0-owner", "description": "`+registeredMark+`", "interface_set": [{"id": 1, "mac_address": "00:16:3e:00:00:02"}]`)),
		"no card":                      lie(made, device(`"hostname": "cp-0-owner", "description": "`+registeredMark+`", "interface_set": []`)),
		"no address":                   lie(simulator.Fault{Op: "link_subnet"}, `{"id": 1, "links": []}`),
		"an address of another subnet": lie(simulator.Fault{Op: "link_subnet"}, `{"id": 1, "links": [{"id": 1, "mode": "static", "ip_address": "10.99.0.5"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			if _, err := r.sim.AddFault(fault); err != nil {
				t.Fatal(err)
			}
			got, err := r.Register(t.Context(), aTest, cp0())
			var taken *NameTakenError
			var other *OtherAddressError
			if !errors.As(err, &taken) && !errors.As(err, &other) {
				t.Errorf("it takes %+v for its device: %v", got, err)
			}
		})
	}
	t.Run("it says that a device is deleted, and keeps it", func(t *testing.T) {
		t.Parallel()
		r := newRegistry(t)
		kept := r.register(cp0())
		if _, err := r.sim.AddFault(simulator.Fault{Method: http.MethodDelete, Endpoint: "devices/{id}/", Status: http.StatusNoContent}); err != nil {
			t.Fatal(err)
		}
		if err := r.Unregister(t.Context(), aTest, kept.AsMachine(), registeredMark); !errors.Is(err, errStillThere) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("something before it finds nothing", func(t *testing.T) {
		t.Parallel()
		r := newRegistry(t)
		kept := r.register(cp0())
		for _, endpoint := range []string{"devices/{id}/", "machines/{id}/"} {
			if _, err := r.sim.AddFault(simulator.Fault{Endpoint: endpoint, Status: http.StatusNotFound, Body: "404 page not found"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Unregister(t.Context(), aTest, kept.AsMachine(), registeredMark); !errors.Is(err, maas.Unavailable) {
			t.Errorf("the error is %v", err)
		}
		composed := &maas.Machine{SystemID: kept.SystemID} // As MAAS lists it; which kind it is does not matter.
		if err := (&images{registrar: r.registrar}).Forget(t.Context(), aTest, composed, registeredMark); !errors.Is(err, maas.Unavailable) {
			t.Errorf("the error for a machine is %v", err)
		}
		r.only()
	})
}

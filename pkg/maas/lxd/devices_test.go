// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// A VM with a device of its host may read and write it: whoever shares a host decides which ones others get.
func TestDevicesOfSharedHosts(t *testing.T) {
	type properties = map[string]string
	gpu := properties{"type": "gpu", "pci": "0000:0A:00.0"}
	for name, tc := range map[string]struct {
		allowed []AllowedDevice
		devices map[string]map[string]string
		refused string // "" if they are given
	}{
		"no devices":                     {nil, nil, ""},
		"none is allowed":                {nil, map[string]map[string]string{"gpu0": gpu}, "gpu0 (gpu)"},
		"all of a type":                  {[]AllowedDevice{{Type: "gpu"}}, map[string]map[string]string{"gpu0": gpu}, ""},
		"a TPM is the VM's own":          {nil, map[string]map[string]string{"tpm0": {"type": "tpm"}}, ""},
		"a TPM, and another's device":    {nil, map[string]map[string]string{"gpu0": gpu, "tpm0": {"type": "tpm"}}, "gpu0 (gpu)"},
		"another type":                   {[]AllowedDevice{{Type: "usb"}}, map[string]map[string]string{"gpu0": gpu}, "gpu0 (gpu)"},
		"by its address":                 {[]AllowedDevice{{"gpu", properties{"pci": "0000:0a:00.0"}}}, map[string]map[string]string{"gpu0": gpu}, ""},
		"another address":                {[]AllowedDevice{{"gpu", properties{"pci": "0000:0b:00.0"}}}, map[string]map[string]string{"gpu0": gpu}, "gpu0 (gpu)"},
		"any of the type, of one":        {[]AllowedDevice{{"gpu", properties{"pci": "0000:0a:00.0"}}}, map[string]map[string]string{"all": {"type": "gpu"}}, "all (gpu)"},
		"a property without a value":     {[]AllowedDevice{{"gpu", properties{"id": ""}}}, map[string]map[string]string{"gpu0": gpu}, "gpu0 (gpu)"},
		"all of the properties":          {[]AllowedDevice{{"usb", properties{"vendorid": "1", "productid": "2"}}}, map[string]map[string]string{"u": {"type": "usb", "vendorid": "1"}}, "u (usb)"},
		"one entry for each":             {[]AllowedDevice{{Type: "usb"}, {Type: "gpu"}}, map[string]map[string]string{"gpu0": gpu, "u": {"type": "usb"}}, ""},
		"one of two":                     {[]AllowedDevice{{Type: "usb"}}, map[string]map[string]string{"a": {"type": "usb"}, "b": {"type": "pci"}}, "b (pci)"},
		"a type that is a property only": {[]AllowedDevice{{Type: "gpu"}}, map[string]map[string]string{"x": {"pci": "gpu"}}, "x ()"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &HostObject{Namespace: "owners", Name: "host", Direct: true, AllowedDevices: tc.allowed, Allows: func(string) bool { return true }}
			h := Host{Name: "host", Object: object}
			theirs, own := VMSpec{Namespace: "theirs", Hardware: tc.devices}, VMSpec{Namespace: "owners", Hardware: tc.devices}
			if got := object.refusedDevice(&theirs); got != tc.refused {
				t.Errorf("refused is %q, want %q", got, tc.refused)
			}
			if (givesDevices(&h, &theirs) == fits) != (tc.refused == "") || givesDevices(&h, &own) != fits {
				t.Errorf("for others: %q; for its own namespace: %q", givesDevices(&h, &theirs), givesDevices(&h, &own))
			}
			var refused *NotAllowedError
			if err := mayStill(&h, &theirs); errors.As(err, &refused) != (tc.refused != "") {
				t.Errorf("before LXD is asked: %v", err)
			}
		})
	}
}

// The LXDHost may be changed after the host was chosen: what it says when the VM is made counts.
func TestAHostThatIsNotForTheVMAnyMoreIsNotAsked(t *testing.T) {
	region := newRegion(t, fuzzRegion)
	device := map[string]map[string]string{"gpu0": {"type": "gpu"}}
	for name, tc := range map[string]struct {
		now  func(*HostObject)
		want bool // whether LXD is asked
	}{
		"as it was":                    {func(*HostObject) {}, true},
		"its devices are not allowed":  {func(o *HostObject) { o.AllowedDevices = nil }, false},
		"its namespace is not allowed": {func(o *HostObject) { o.Allows = func(string) bool { return false } }, false},
		"it is cordoned":               {func(o *HostObject) { o.Unschedulable = true }, false},
		"it is gone":                   {func(o *HostObject) { o.Name = "other" }, false},
		"its Secret is gone":           {func(o *HostObject) { o.Problem = errNoSecret }, false},
	} {
		t.Run(name, func(t *testing.T) {
			server, asked := deaf(t)
			object := HostObject{
				Namespace: "owners", Name: "host", Direct: true, Server: server, Allows: func(string) bool { return true },
				AllowedDevices: []AllowedDevice{{Type: "gpu"}},
			}
			chosen := object
			tc.now(&object)
			service := NewService(NewComposer(region.inventory, NewHostRefresher(), theseObjects{object}, &lxdhost.Connections{}), NewReservations())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				select {
				case <-asked:
					cancel()
				case <-ctx.Done():
				}
			}()
			spec := VMSpec{Namespace: "theirs", Hostname: "vm", Resources: Resources{1, 1024, 8}, Hardware: device}
			_, err := service.ComposeVM(ctx, maas.Unrecorded("a test"), Host{Name: "host", Object: &chosen}, spec)
			var refused *NotAllowedError
			if isRefused := errors.As(err, &refused) || errors.Is(err, errNoSecret); !NotComposed(err) || isRefused == tc.want {
				t.Errorf("the VM: %v", err)
			}
		})
	}
	t.Run("a VM host of MAAS", func(t *testing.T) {
		composer := &vmHosts{region.inventory, NewHostRefresher()}
		hosts, err := composer.Hosts(t.Context(), VMSpec{}, hostsMaxAge)
		if err != nil || len(hosts) != 1 {
			t.Fatal(hosts, err)
		}
		spec := VMSpec{Hostname: "vm", Resources: Resources{1, 2048, 8}, Hardware: device}
		var refused *NotAllowedError
		if _, err := composer.Compose(t.Context(), maas.Unrecorded("a test"), hosts[0], spec); !errors.As(err, &refused) {
			t.Errorf("a VM with a device: %v", err)
		}
		cordoned := theseObjects{{Unschedulable: true, VMHost: hosts[0].Key(), Allows: func(string) bool { return true }}}
		spec.Hardware, spec.SecureBoot = nil, true
		if _, err := composer.Compose(t.Context(), maas.Unrecorded("a test"), hosts[0], spec); !errors.As(err, &refused) {
			t.Errorf("a VM with secure boot: %v", err)
		}
		spec.SecureBoot = false
		service := NewService(NewComposer(region.inventory, NewHostRefresher(), cordoned, nil), NewReservations())
		if _, err := service.ComposeVM(t.Context(), maas.Unrecorded("a test"), hosts[0], spec); !NotComposed(err) || !errors.As(err, &refused) {
			t.Errorf("a VM on a host that is cordoned by now: %v", err)
		}
		err = region.inventory.ChangeVMHosts(func(client *maas.Client) error {
			_, err := client.AddVMHostTag(t.Context(), maas.Unrecorded("a test"), hosts[0].ID, RetiringTag)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := composer.Compose(t.Context(), maas.Unrecorded("a test"), hosts[0], spec); !errors.As(err, &refused) {
			t.Errorf("a VM on a host that is being removed by now: %v", err)
		}
	})
}

// lostObjects are LXDHosts that can't be listed: MAAS does not say whether it has VM hosts.
type lostObjects struct{}

func (lostObjects) HostObjects(context.Context) ([]HostObject, error) {
	return nil, &maas.Error{Kind: maas.Unavailable, Status: http.StatusBadGateway}
}

// Nothing was asked for yet, so no VM may come.
func TestAHostThatCannotBeLookedAtMakesNoVM(t *testing.T) {
	region := newRegion(t, fuzzRegion)
	composer := NewComposer(region.inventory, NewHostRefresher(), lostObjects{}, &lxdhost.Connections{})
	for name, host := range map[string]Host{
		"a VM host":     {ID: 1, Name: "host"},
		"a direct host": {Name: "host", Object: &HostObject{Namespace: "ns", Name: "host", Direct: true}},
	} {
		t.Run(name, func(t *testing.T) {
			service := NewService(composer, NewReservations())
			_, err := service.ComposeVM(t.Context(), maas.Unrecorded("a test"), host, VMSpec{Namespace: "ns", Hostname: "vm"})
			if err == nil || !NotComposed(err) || !maas.HadNoEffect(err) {
				t.Errorf("the error is %v, the VM may come: %t", err, !maas.HadNoEffect(err))
			}
			if _, cooling := service.failuresOf(&host).Get(host.Key()); cooling {
				t.Error("the host counts as one that failed")
			}
		})
	}
}

var errNoSecret = errors.New("there is no Secret")

// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// limitsHosts is why a field of VMSpec is in no request: placement reads it.
const limitsHosts = "it chooses the host"

// notAsked are the fields that are in no request to a server, and why.
var notAsked = map[string]map[string]string{
	"VM hosts": {
		"Marks": "MAAS marks VMs itself", "Namespace": limitsHosts, "Cluster": limitsHosts, "Zone": limitsHosts,
		"ResourcePool": limitsHosts, "HostName": limitsHosts, "Project": limitsHosts, "Profile": limitsHosts, "Tags": limitsHosts,
		"NotTags": limitsHosts, "Processors": limitsHosts, "NoMAASImage": limitsHosts, "AntiAffinity": limitsHosts, "MayBeOn": limitsHosts,
		"Hardware": limitsHosts, "Image": "it goes with the deployment", "UserData": "it goes with the deployment",
		"SecureBoot": limitsHosts, "AgentName": "it goes with the claim", "Annotations": "they follow the claim", "Address": "it is linked after the claim",
	},
	"images": {
		"Namespace": limitsHosts, "Cluster": limitsHosts, "Zone": limitsHosts, "ResourcePool": limitsHosts, "HostName": limitsHosts,
		"Project": limitsHosts, "Tags": limitsHosts, "NotTags": limitsHosts, "Processors": limitsHosts, "AntiAffinity": limitsHosts,
		"MayBeOn": limitsHosts, "NoMAASImage": "MAAS installs nothing", "Commission": "MAAS commissions no device",
		"Image": "its fingerprint is",
	},
}

// Each field of a VM is in the requests of both ways to make one, or it is told why not: a field that is forgotten in one
// would do nothing there.
func TestEveryFieldOfAVMIsAskedFor(t *testing.T) {
	object := &HostObject{Name: "h", Bridge: "br0", StoragePool: "default", Subnet: netip.MustParsePrefix("10.0.0.0/24")}
	requests := map[string]func(VMSpec) any{
		"VM hosts": func(spec VMSpec) any { return composition(Host{}, spec) },
		"images": func(spec VMSpec) any {
			return []any{toInstance(object, spec), object.registration(spec)}
		},
	}
	for name, request := range requests {
		base := VMSpec{Hostname: "vm", Devices: []Device{{Name: "eth0"}}}
		for _, field := range reflect.VisibleFields(reflect.TypeFor[VMSpec]()) {
			if field.Anonymous {
				continue
			}
			spec := base
			reflect.ValueOf(&spec).Elem().FieldByIndex(field.Index).Set(another(t, field.Name, field.Type))
			isAsked := !reflect.DeepEqual(request(spec), request(base))
			if why := notAsked[name][field.Name]; isAsked == (why != "") {
				t.Errorf("%s: %s is asked for: %t; it is not, because %q", name, field.Name, isAsked, why)
			}
		}
	}
}

// another is a value that the base does not have.
func another(t *testing.T, name string, kind reflect.Type) reflect.Value {
	t.Helper()
	values := []any{
		"other", 7, true, []string{"other"}, map[string]string{"a": "b"}, netip.MustParseAddr("10.0.0.9"), RequireApart,
		lxdhost.Marks{Owner: "o", Machine: "m"}, []Disk{{7, "p"}}, map[string]map[string]string{"gpu": {"type": "gpu"}},
		[]Device{{Name: "eth0", Bridge: "br1", Subnet: "10.1.0.0/24"}, {Name: "eth1"}}, []Host{{Name: "h"}},
	}
	for _, value := range values {
		if reflect.TypeOf(value) == kind {
			return reflect.ValueOf(value)
		}
	}
	t.Fatalf("%s has the type %s, of which the test has no value", name, kind)
	return reflect.Value{}
}

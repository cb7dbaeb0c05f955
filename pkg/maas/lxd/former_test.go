// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// objectsOf are LXDHosts of a test.
type objectsOf []HostObject

func (o objectsOf) HostObjects(context.Context) ([]HostObject, error) { return o, nil }

// MAAS 4.0: what an LXDHost says of a VM on a former VM host decides whether the VM is gone. One that is not for the VM's
// namespace is not asked, whatever it says of itself.
func TestAFormerVMHostIsOneForTheNamespaceOfTheVM(t *testing.T) {
	former := func(namespace string, allows ...string) HostObject {
		return HostObject{
			Namespace: namespace, Name: "lxd-a", VMHostID: 1, Direct: true, Server: lxdhost.Options{Address: namespace + ".example.com:8443"},
			Allows: func(n string) bool { return n == namespace || len(allows) > 0 },
		}
	}
	for name, objects := range map[string]objectsOf{
		"after":  {former("capmaas-system", "*"), former("tenant")},
		"before": {former("tenant"), former("capmaas-system", "*")},
	} {
		t.Run("the other one comes "+name, func(t *testing.T) {
			d := &images{objects: objects}
			for namespace, want := range map[string]string{"victim": "capmaas-system", "capmaas-system": "capmaas-system"} {
				got, err := d.former(t.Context(), VM{HostRef: "1/lxd-a", Namespace: namespace})
				if err != nil || got.Namespace != want {
					t.Errorf("for a VM of namespace %s, LXDHost %+v is asked: %v", namespace, got, err)
				}
			}
		})
	}
	var missing *FormerHostError
	d := &images{objects: objectsOf{former("tenant")}}
	if _, err := d.former(t.Context(), VM{HostRef: "1/lxd-a", Namespace: "victim"}); !errors.As(err, &missing) || missing.LXDHost != "" {
		t.Errorf("a VM of namespace victim has the LXDHost of another one: %v", err)
	}
}

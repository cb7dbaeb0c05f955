// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"errors"
	"fmt"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/lifetest"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// How the interfaces of a machine were must fit into an annotation, or nothing is changed on it.
func TestAMachineWithMoreInterfacesThanCanBeRecordedIsNotChanged(t *testing.T) {
	m := &infrav1.MaasMachine{}
	host := lifetest.ScopeOf(m)
	host.MaasCluster.Spec.LXDControlPlaneCluster = true
	l := &life.Life{Machine: host, Record: lifetest.Of(t, m).Record, MAAS: &maas.Machine{Status: maas.StatusAllocated}, Proven: true}
	for i := range maxArranged + 1 {
		l.MAAS.Interfaces = append(l.MAAS.Interfaces, &maas.Interface{ID: i, Name: fmt.Sprintf("veth%d", i)})
	}
	_, err := New(&life.Steps{}).Interfaces(t.Context(), l)
	if refused := (*machine.NICError)(nil); !errors.As(err, &refused) || len(m.Annotations) > 0 {
		t.Errorf("%v, with the annotations %v", err, m.Annotations)
	}
}

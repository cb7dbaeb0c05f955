// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// A host may be called something else than when the VM was made there: what is recorded identifies it.
func TestPeersAreOnTheHostThatIsRecorded(t *testing.T) {
	m := infrav1.MaasMachine{Status: infrav1.MaasMachineStatus{LXDHost: "lxd-a"}}
	m.Annotations = map[string]string{infrav1.RecordAnnotation: `{"hosts":["3/lxd-b","7/lxd-a"]}`}
	peers := Peers([]infrav1.MaasMachine{m}, "owner", false, "other")
	if len(peers) != 1 || peers[0].Host != "lxd-a" || peers[0].Ref != "7/lxd-a" {
		t.Errorf("the peers are %+v", peers)
	}
}

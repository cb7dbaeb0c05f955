// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// theirs is a machine in the pool that a person has prepared: another layout, a bridge, and a static address.
func (w *world) theirs(hostname string) (systemID string) {
	w.t.Helper()
	systemID = w.named(hostname)
	w.maasCall(http.MethodPost, "machines/"+systemID+"/?op=set_storage_layout", url.Values{"storage_layout": {"lvm"}})
	metal, _ := w.maas.Machine(systemID)
	w.makeBridge(metal, "br-theirs")
	w.maasCall(http.MethodPost, "nodes/"+systemID+"/interfaces/br-theirs/?op=link_subnet", url.Values{"mode": {"STATIC"}, "subnet": {"10.77.0.0/24"}, "ip_address": {"10.77.0.50"}})
	return systemID
}

// partitionsOf are the ids that a person with access to MAAS reads there.
func (w *world) partitionsOf(systemID string) (ids []int) {
	w.t.Helper()
	m, err := w.maasClient().GetMachine(w.t.Context(), systemID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range m.Disks {
		for _, p := range d.Partitions {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// What a record or an annotation says of a machine that was never the object's changes nothing on it: others may have written it, or a
// backup has brought it back.
func TestWhatIsRecordedOfAMachineThatWasNeverOursUndoesNothing(t *testing.T) {
	t.Parallel()
	const undo = `{"owner":"x","made":["br-theirs"],"before":[]}`
	for name, forge := range map[string]func(w *world, id string) (infrav1.MaasMachineSpec, map[string]string){
		"storage": func(w *world, id string) (infrav1.MaasMachineSpec, map[string]string) {
			return infrav1.MaasMachineSpec{}, map[string]string{infrav1.RecordAnnotation: recordText(w.t, record.MachineData{Storage: &record.StorageLayout{SystemID: id, Partitions: w.partitionsOf(id)}})}
		},
		"storage of a lost call": func(w *world, id string) (infrav1.MaasMachineSpec, map[string]string) {
			return infrav1.MaasMachineSpec{}, map[string]string{infrav1.RecordAnnotation: recordText(w.t, record.MachineData{Storage: &record.StorageLayout{SystemID: id}, Excluded: id})}
		},
		"interfaces": func(_ *world, id string) (infrav1.MaasMachineSpec, map[string]string) {
			return infrav1.MaasMachineSpec{SystemID: id}, map[string]string{infrav1.InterfacesAnnotation: undo}
		},
		"address": func(_ *world, id string) (infrav1.MaasMachineSpec, map[string]string) {
			return infrav1.MaasMachineSpec{SystemID: id}, map[string]string{infrav1.StaticIPAnnotation: "10.77.0.50"}
		},
		"all, with a release that began": func(w *world, id string) (infrav1.MaasMachineSpec, map[string]string) {
			return infrav1.MaasMachineSpec{SystemID: id}, map[string]string{
				infrav1.InterfacesAnnotation: undo, infrav1.StaticIPAnnotation: "10.77.0.50", infrav1.OwnerIDAnnotation: "abcdefghijkl",
				infrav1.RecordAnnotation: recordText(w.t, record.MachineData{
					Storage: &record.StorageLayout{SystemID: id, Partitions: w.partitionsOf(id)}, Excluded: id, Phase: &record.Phase{Name: "releasing", Since: metav1.Now()},
				}),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			id := w.theirs("metal-a")
			before := w.maas.State()
			spec, forged := forge(w, id)
			spec.MinCPU = 64 // No machine has so many.
			if owner := forged[infrav1.OwnerIDAnnotation]; owner != "" {
				forged[infrav1.OwnerIDAnnotation] = cluster.Annotations[infrav1.OwnerIDAnnotation]
			}
			m := w.newMachine("m", false, spec, func(meta *metav1.ObjectMeta) { meta.Annotations = forged })
			reason := infrav1.NoMachineAvailableReason
			if spec.SystemID != "" {
				reason = infrav1.MachineDoesNotFitReason
			}
			w.refused(m, infrav1.MachineDeployedCondition, reason)
			w.unchanged(before)
			w.delete(m)
			w.unchanged(before)
			// Nor does another of our objects that gets the machine undo anything.
			other := w.deployedMachine("other", false, infrav1.MaasMachineSpec{SystemID: id})
			w.delete(other)
			w.unchanged(before)
		})
	}
}

// A machine that a person released is as before all the same, also by a new manager: MAAS says whose it was.
func TestAMachineThatAPersonReleasedIsAsBefore(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
	before := w.maas.State()
	m := w.deployedMachine("m", false, withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }))
	id := m.Spec.SystemID
	w.annotate(m, clusterv1.PausedAnnotation, new(string))
	w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
	w.inState(id, "Ready")
	w.restart()
	w.beginDeletion(m)
	w.annotate(m, clusterv1.PausedAnnotation, nil)
	w.goes(m)
	w.unchanged(before)
}

// A layout that another user has set since is theirs.
func TestALayoutThatSomebodyHasSetSinceStays(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
	m := w.deployedMachine("m", false, shapes["lvm"])
	id := m.Spec.SystemID
	w.stopManager()
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
	w.inState(id, "Ready")
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=set_storage_layout", url.Values{"storage_layout": {"lvm"}})
	before := w.storageOf(id)
	w.beginDeletion(m)
	w.startManager()
	w.goes(m)
	if after := w.storageOf(id); !slices.Equal(before, after) {
		t.Errorf("the layout that a person set was %v and is %v", before, after)
	}
}

// An entry for a machine that is not proven to be the cluster's gives nothing back, and undoes nothing.
func TestAForgedEntryGivesNothingBack(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	id := w.named("metal-a")
	metal, _ := w.maas.Machine(id)
	w.makeBridge(metal, "br-theirs")
	w.allocateAs("somebody", id)
	free := w.theirs("metal-b")
	before := w.maas.State()
	forged := `{"kept":[` + forgedEntry(id) + `,` + forgedEntry(free) + `]}`
	w.patch(cluster, func() { cluster.Annotations[infrav1.RecordAnnotation] = forged })
	w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
	w.unchanged(before)
}

func forgedEntry(id string) string {
	return `{"systemID":"` + id + `","hostname":"x","for":"machinedeployment/x","machine":"x","since":"2026-11-26T16:00:00Z","until":"2026-11-26T16:00:00Z",` +
		`"annotations":{"` + infrav1.InterfacesAnnotation + `":"{\"owner\":\"x\",\"made\":[\"br-theirs\"],\"before\":[]}"},` +
		`"storage":{"systemID":"` + id + `","partitions":[1]},"spec":{"image":""}}`
}

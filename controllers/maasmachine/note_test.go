// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// A note ends with its MaasMachine, if that is proven to be gone: whatever may still need the note keeps it.
func TestTheNoteOfAMaasMachineThatIsGoneEnds(t *testing.T) {
	const ownerID = "0a1b2c3d4e5f"
	for name, tc := range map[string]struct {
		by   string
		kept bool // the cluster keeps the machine
		ends bool
	}{
		"of one that is gone":       {by: ownership.AgentName(ownerID, "gone"), ends: true},
		"of one that is there":      {by: ownership.AgentName(ownerID, "there")},
		"of a machine that is kept": {by: ownership.AgentName(ownerID, "gone"), kept: true},
		"of another cluster":        {by: ownership.AgentName("a0b1c2d3e4f5", "gone")},
		"of nobody that is known":   {by: "gone"},
		"of no MaasMachine":         {by: "capmaas/" + ownerID},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
				p.create(&infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "there", Namespace: namespace}})
				id := p.server().SystemID
				p.ownerID(ownerID, tc.kept, id)
				p.wake(job{"MaasCluster", "c"}, 0)
				p.run(time.Minute, nil)
				maasClient := p.scopes.Regions()[0].Inventory.Client()
				note := maas.Tag{
					Name: inmaas.ExcludeTag + "-" + id, Comment: inmaas.Note{By: tc.by, Until: time.Now().Add(1000 * time.Hour)}.String(),
				}
				if err := maasClient.CreateTag(t.Context(), record.TendQuarantines.Permit(), note); err != nil {
					t.Fatal(err)
				}
				p.add("shaped", striped)
				p.run(15*time.Minute, func() bool { return p.get("shaped").Status.Ready })
				m := p.get("shaped")
				if m.Status.Ready != tc.ends {
					t.Fatalf("it runs: %v: %s", m.Status.Ready, conditions.GetMessage(m, infrav1.ReadyCondition))
				}
				tags, err := maasClient.ListTags(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				stays := slices.ContainsFunc(tags, func(tag maas.Tag) bool { return tag.Name == note.Name && inmaas.Parse(tag.Comment).By == tc.by })
				if told := strings.Contains(conditions.GetMessage(m, infrav1.ReadyCondition), note.Name); stays == tc.ends || told != stays {
					t.Errorf("the note is there still: %v; it is named: %v", stays, told)
				}
			})
		})
	}
}

// notedByOneThatIsGone is a region with one server, which a MaasMachine of the cluster has noted that is gone.
func notedByOneThatIsGone(t *testing.T, ownerID string) (p *pace, id string) {
	t.Helper()
	p = newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
	id = p.server().SystemID
	p.ownerID(ownerID, false, id)
	p.wake(job{"MaasCluster", "c"}, 0)
	p.run(time.Minute, nil)
	p.must(p.scopes.Regions()[0].Inventory.Client().CreateTag(t.Context(), record.TendQuarantines.Permit(), maas.Tag{
		Name:    inmaas.ExcludeTag + "-" + id,
		Comment: inmaas.Note{By: ownership.AgentName(ownerID, "gone"), Until: time.Now().Add(1000 * time.Hour)}.String(),
	}))
	return p, id
}

// One look that does not find a MaasMachine proves nothing: its note ends when the settle time is over, and not before.
// Until then the MaasMachine that needs the machine is reconciled now and then.
func TestTheNoteEndsAfterTheSettleTime(t *testing.T) {
	const ownerID = "0a1b2c3d4e5f"
	synctest.Test(t, func(t *testing.T) {
		p, _ := notedByOneThatIsGone(t, ownerID)
		p.add("shaped", striped)
		added, looks := time.Now(), p.looks[job{"MaasMachine", "shaped"}]
		ends := func() bool {
			return slices.ContainsFunc(p.MAAS.Calls().Log, func(call simulator.Call) bool {
				return call.Method == http.MethodDelete && strings.HasPrefix(call.Endpoint, "tags/")
			})
		}
		p.run(15*time.Minute, ends)
		waited := time.Since(added)
		if !ends() || waited < productionSettle || waited > productionSettle+2*time.Minute {
			t.Fatalf("the note has ended: %v, after %v; want %v and a bit more", ends(), waited, productionSettle)
		}
		looks = p.looks[job{"MaasMachine", "shaped"}] - looks
		if most := int(waited / (10 * time.Second)); looks > most {
			t.Errorf("it was reconciled %d times in %v, at most %d are wanted", looks, waited, most)
		}
	})
}

// Between the end of that note and the machine's hold another manager may hold it: nothing of it is to be undone here.
func TestAMachineThatAnotherHoldsAfterAllIsNotRecorded(t *testing.T) {
	const ownerID = "0a1b2c3d4e5f"
	synctest.Test(t, func(t *testing.T) {
		p, id := notedByOneThatIsGone(t, ownerID)
		maasClient := p.scopes.Regions()[0].Inventory.Client()
		_, err := p.MAAS.AddFault(simulator.Fault{
			Method: http.MethodPost, Endpoint: "tags/", NoOp: true, Status: http.StatusBadRequest,
			Body: `{"name": ["Tag with this Name already exists."]}`,
		})
		p.must(err)
		p.add("shaped", striped)
		ended := false
		p.run(15*time.Minute, func() bool {
			tags, err := maasClient.ListTags(t.Context())
			p.must(err)
			ended = !slices.ContainsFunc(tags, func(tag maas.Tag) bool { return tag.Name == inmaas.ExcludeTag+"-"+id })
			return ended
		})
		recorded, err := record.OfMachine(p.get("shaped"))
		if err != nil || !ended || recorded.Excluded != "" {
			t.Errorf("the note has ended: %v; to be undone is what is on machine %q, want none: %v", ended, recorded.Excluded, err)
		}
	})
}

func (p *pace) create(o client.Object) {
	p.Helper()
	if err := p.client.Create(p.Context(), o); err != nil {
		p.Fatal(err)
	}
}

// ownerID gives the cluster an owner id, and a machine that it keeps for the next Machine of somebody.
func (p *pace) ownerID(id string, keeps bool, systemID string) {
	p.Helper()
	cluster := &infrav1.MaasCluster{}
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster); err != nil {
		p.Fatal(err)
	}
	cluster.Annotations = map[string]string{infrav1.OwnerIDAnnotation: id}
	if keeps {
		text, err := json.Marshal(record.ClusterData{Kept: []record.KeptMachine{{SystemID: systemID, Machine: "gone", For: "nobody"}}})
		if err != nil {
			p.Fatal(err)
		}
		cluster.Annotations[infrav1.RecordAnnotation] = string(text)
	}
	if err := p.client.Update(p.Context(), cluster); err != nil {
		p.Fatal(err)
	}
}

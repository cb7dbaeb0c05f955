// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	ourName  = "capmaas/owner/m"
	ourVM    = "m-hash"
	ourID    = "abc123"
	otherVM  = "renamed"
	nobodys  = ""
	somebody = "juju"
)

// record is a MAAS that has one machine, and knows who acquired it.
type record struct {
	machine  maas.Machine
	agent    string
	instance string // what LXD calls it
	lies     bool   // lists are empty
}

func (r record) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	var answer any
	switch {
	case query.Get("op") == "whoami":
		answer = maas.User{Username: "admin"}
	case query.Get("op") == "power_parameters":
		answer = map[string]map[string]string{ourID: {"instance_name": r.instance}}
	case strings.HasSuffix(req.URL.Path, "/machines/"):
		found := []maas.Machine{}
		is := !query.Has("agent_name") || query.Get("agent_name") == r.agent
		isNot := !query.Has("not_agent_name") || query.Get("not_agent_name") != r.agent
		if is && isNot && !r.lies {
			found = append(found, r.machine)
		}
		answer = found
	default:
		answer = r.machine
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (r record) prover(t *testing.T) *Prover {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL+"/MAAS", "consumer:token:secret")
	return NewProver(inventory.New(client, inventory.Options{}))
}

// From Allocated on, MAAS's record decides; a name proves the owner of a VM only while no user has acquired it. If MAAS
// removes the agent name when a release starts, and the release fails, our annotations remain as the proof.
func TestIsOurs(t *testing.T) {
	marks := map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.m"}
	metal := Identity{OwnerID: "owner", AgentName: ourName, Annotations: marks}
	vm := metal
	vm.Hostname = ourVM
	machine := func(status maas.Status, owner, hostname string, marks map[string]string) maas.Machine {
		m := maas.Machine{SystemID: ourID, Status: status, Owner: owner, Hostname: hostname, WorkloadAnnotations: marks}
		if hostname != nobodys {
			m.Pod = &maas.Ref{ID: 1, Name: "host"}
		}
		return m
	}
	tested := machine(maas.StatusTesting, "admin", ourVM, nil)
	failedTests := func(owner string, marks map[string]string) maas.Machine {
		return machine(maas.StatusFailedTesting, owner, ourVM, marks)
	}
	deployed := tested
	deployed.OSystem = "ubuntu"
	for name, tc := range map[string]struct {
		id   Identity
		maas record
		want bool
	}{
		"with our agent name":                                           {metal, record{machine: machine(maas.StatusDeployed, "admin", "", nil), agent: ourName}, true},
		"with another agent name":                                       {metal, record{machine: machine(maas.StatusDeployed, "admin", "", marks), agent: somebody}, false},
		"without an agent name, with our annotations":                   {metal, record{machine: machine(maas.StatusDeployed, "admin", "", marks)}, true},
		"without an agent name, with our annotations, of another user":  {metal, record{machine: machine(maas.StatusDeployed, "other", "", marks)}, false},
		"without an agent name, with our annotations, being released":   {metal, record{machine: machine(maas.StatusReleasing, "admin", "", marks)}, false},
		"without an agent name, with the annotations of another object": {metal, record{machine: machine(maas.StatusDeployed, "admin", "", map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.n"})}, false},
		"release failed, with our annotations":                          {metal, record{machine: machine(maas.StatusReleasingFailed, "admin", "", marks)}, true},
		"release failed, without annotations":                           {metal, record{machine: machine(maas.StatusReleasingFailed, "admin", "", nil)}, false},
		"release failed, of another MaasMachine": {metal, record{machine: machine(maas.StatusReleasingFailed, "admin", "",
			map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.n"})}, false},
		"a VM that was marked broken":                 {vm, record{machine: machine(maas.StatusBroken, "admin", ourVM, marks)}, true},
		"another user's VM that was marked broken":    {vm, record{machine: machine(maas.StatusBroken, "other", ourVM, nil), agent: somebody}, false},
		"bare metal that was marked broken":           {metal, record{machine: machine(maas.StatusBroken, "admin", "", marks)}, false},
		"a VM that nobody acquired":                   {vm, record{machine: machine(maas.StatusReady, "", ourVM, nil)}, true},
		"a VM that is commissioned":                   {vm, record{machine: machine(maas.StatusCommissioning, "admin", ourVM, nil)}, true},
		"a VM that is tested after its commissioning": {vm, record{machine: tested}, true},
		"another user's VM with our annotations":      {vm, record{machine: failedTests("other", marks)}, false},
		"a VM with another's annotations":             {vm, record{machine: failedTests("admin", map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.n"})}, false},
		"a VM of another user that is tested":         {vm, record{machine: deployed, agent: somebody}, false},
		"a VM that we acquired":                       {vm, record{machine: machine(maas.StatusAllocated, "admin", ourVM, nil), agent: ourName}, true},
		"a VM that another user acquired":             {vm, record{machine: machine(maas.StatusAllocated, "other", ourVM, nil), agent: somebody}, false},
		"a VM that our user acquired otherwise":       {vm, record{machine: machine(maas.StatusDeployed, "admin", ourVM, nil)}, false},
		"a VM that was renamed":                       {vm, record{machine: machine(maas.StatusReady, "", otherVM, nil), instance: ourVM}, true},
		"another VM":                                  {vm, record{machine: machine(maas.StatusReady, "", otherVM, nil), instance: otherVM}, false},
		"bare metal that has the VM's name":           {vm, record{machine: maas.Machine{SystemID: ourID, Status: maas.StatusReady, Hostname: ourVM}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.maas.prover(t).IsOurs(t.Context(), tc.id, &tc.maas.machine)
			if err != nil || got != tc.want {
				t.Errorf("ours: %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

// That a list is empty proves nothing.
func TestAnEmptyListLeavesUndecidedWhoseAMachineIs(t *testing.T) {
	r := record{machine: maas.Machine{SystemID: ourID, Status: maas.StatusDeployed, Owner: "admin"}, agent: ourName, lies: true}
	ours, err := r.prover(t).IsOurs(t.Context(), Identity{AgentName: ourName}, &r.machine)
	var undecided *UndecidedError
	if ours || !errors.As(err, &undecided) {
		t.Errorf("ours: %v, %v; want that it is undecided", ours, err)
	}
}

func TestIsOursInReleaseByWhatMAASHasNow(t *testing.T) {
	id := Identity{OwnerID: "owner", Annotations: map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.m"}}
	other := func(key, value string) map[string]string {
		annotations := map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.m"}
		annotations[key] = value
		return annotations
	}
	for name, tc := range map[string]struct {
		machine maas.Machine
		want    bool
	}{
		"with our annotations":        {maas.Machine{Owner: "admin", WorkloadAnnotations: id.Annotations}, true},
		"without annotations":         {maas.Machine{Owner: "admin"}, false},
		"that nobody owns":            {maas.Machine{WorkloadAnnotations: id.Annotations}, false},
		"of another cluster":          {maas.Machine{Owner: "admin", WorkloadAnnotations: other(AnnotationOwner, "other")}, false},
		"of another MaasMachine":      {maas.Machine{Owner: "admin", WorkloadAnnotations: other(AnnotationMachine, "ns.n")}, false},
		"with more annotations of us": {maas.Machine{Owner: "admin", WorkloadAnnotations: other("capmaas-cluster", "c")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.machine.SystemID, tc.machine.Status = "abc123", maas.StatusDeployed
			now, ours, err := record{machine: tc.machine}.prover(t).IsOursInRelease(t.Context(), id, "abc123")
			if err != nil || ours != tc.want || now.Status != maas.StatusDeployed {
				t.Errorf("ours: %v, %+v, %v; want %v", ours, now, err, tc.want)
			}
		})
	}
}

// A device is one VM's: by its description or its name, of which people may change one. Another's is not, nor is it bare
// metal's.
func TestWhoseADeviceIs(t *testing.T) {
	t.Parallel()
	vm := Identity{OwnerID: "owner", AgentName: ourName, Hostname: ourVM}
	metal := Identity{OwnerID: "owner", AgentName: ourName}
	for name, tc := range map[string]struct {
		id             Identity
		device         maas.Machine
		composed, ours bool
	}{
		"ours":         {vm, maas.Machine{Hostname: ourVM, Description: ourName}, true, true},
		"renamed":      {vm, maas.Machine{Hostname: otherVM, Description: ourName}, true, true},
		"unmarked":     {vm, maas.Machine{Hostname: ourVM, Description: somebody}, true, false},
		"another's":    {vm, maas.Machine{Hostname: otherVM, Description: somebody}, false, false},
		"of our metal": {metal, maas.Machine{Hostname: ourVM, Description: ourName}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			device := tc.device
			device.SystemID, device.Device = ourID, true
			prover := record{machine: device}.prover(t)
			composed, err := prover.IsComposed(t.Context(), tc.id, &device)
			ours, failed := prover.IsOurs(t.Context(), tc.id, &device)
			if err != nil || failed != nil || composed != tc.composed || ours != tc.ours {
				t.Errorf("composed %v (%v), ours %v (%v)", composed, err, ours, failed)
			}
		})
	}
}

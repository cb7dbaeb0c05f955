// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"slices"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

const here, elsewhere = "uid-here", "uid-elsewhere"

var (
	alive  = Cluster{Namespace: "ns", Name: "c1", OwnerID: "owner1"}
	frozen = Cluster{Namespace: "ns", Name: "c2", OwnerID: "owner2", Paused: true}
)

// metal is a deployed machine that was made for MaasMachine ns/name of the cluster with this owner id.
func metal(owner, name string, change ...func(*maas.Machine)) *maas.Machine {
	m := &maas.Machine{
		SystemID: "id-" + name, Hostname: "metal-" + name, Status: maas.StatusDeployed, Owner: "capi",
		WorkloadAnnotations: map[string]string{
			ownership.AnnotationOwner: owner, ownership.AnnotationMachine: "ns." + name, ownership.AnnotationManagement: here,
		},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// vm is a composed VM that is not deployed yet.
func vm(owner, name string, change ...func(*maas.Machine)) *maas.Machine {
	m := &maas.Machine{
		SystemID: "id-" + name, Hostname: maas.Hostname(name, owner), Status: maas.StatusReady, Pod: &maas.Ref{ID: 1, Name: "lxd-a"},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func annotate(key, value string) func(*maas.Machine) {
	return func(m *maas.Machine) {
		if m.WorkloadAnnotations == nil {
			m.WorkloadAnnotations = map[string]string{}
		}
		m.WorkloadAnnotations[key] = value
		if value == "" {
			delete(m.WorkloadAnnotations, key)
		}
	}
}

func ownedBy(user string) func(*maas.Machine) {
	return func(m *maas.Machine) { m.Owner = user }
}

func deployed(m *maas.Machine) { m.OSystem = "ubuntu" }

func inState(status maas.Status) func(*maas.Machine) {
	return func(m *maas.Machine) { m.Status = status }
}

// device is that of a VM that was made from an image; annotated is the owner id in its annotations.
func device(owner, name, annotated string) *maas.Machine {
	d := maas.Device{SystemID: "id-" + name, Hostname: maas.Hostname(name, owner), Owner: "capi", Description: ownership.AgentName(owner, name)}
	if annotated != "" {
		d.WorkloadAnnotations = map[string]string{ownership.AnnotationOwner: annotated, ownership.AnnotationMachine: "ns." + name}
	}
	return d.AsMachine()
}

func TestWhatIsAnOrphan(t *testing.T) {
	const proven, doubtful, no = "proven", "doubtful", "no"
	noOwner := func(m *maas.Machine) { m.Owner = "" }
	unhosted := func(m *maas.Machine) { m.Pod, m.PowerType = nil, maas.PowerTypeLXD }
	for name, tc := range map[string]struct {
		machine *maas.Machine
		objects []Object
		watched string // the namespace that was read
		want    string
	}{
		"deployed, no object":                         {machine: metal("owner1", "a"), want: proven},
		"marked before there was a management mark":   {machine: metal("owner1", "a", annotate(ownership.AnnotationManagement, "")), want: proven},
		"failed to deploy":                            {machine: metal("owner1", "a", inState(maas.StatusFailedDeployment)), want: proven},
		"its release failed":                          {machine: metal("owner1", "a", inState(maas.StatusReleasingFailed)), want: proven},
		"its object has another machine":              {machine: metal("owner1", "a"), objects: []Object{{"ns", "a", "id-b"}}, want: proven},
		"an object of this name in another namespace": {machine: metal("owner1", "a"), objects: []Object{{"other", "a", ""}}, want: proven},
		"a VM that was deployed":                      {machine: vm("owner1", "a", annotate(ownership.AnnotationOwner, "owner1"), annotate(ownership.AnnotationMachine, "ns.a")), want: proven},
		"a VM that was never deployed":                {machine: vm("owner1", "a"), want: proven},
		"a VM whose hostname lacks its object's name": {machine: vm("owner1", strings.Repeat("long-", 20)), want: proven},
		"a VM that failed commissioning":              {machine: vm("owner1", "a", inState(maas.StatusFailedCommissioning)), want: proven},

		"a VM without a VM host":          {machine: vm("owner1", "a", unhosted), want: proven},
		"a deployed VM without a VM host": {machine: vm("owner1", "a", unhosted, ownedBy("capi"), inState(maas.StatusDeployed), annotate(ownership.AnnotationOwner, "owner1"), annotate(ownership.AnnotationMachine, "ns.a")), want: proven},

		"a device without annotations":  {machine: device("owner1", "a", ""), want: proven},
		"a device with annotations":     {machine: device("owner1", "a", "owner1"), want: proven},
		"a device, claimed":             {machine: device("owner1", "a", "owner1"), objects: []Object{{"ns", "a", "id-a"}}, want: no},
		"a device of a left VM":         {machine: device("owner1", "a", "owner1"), objects: []Object{{"ns", "a", "id-a"}, {"ns", "a", "id-b"}}, want: no},
		"a device of a paused cluster":  {machine: device("owner2", "a", "owner2"), want: no},
		"a device that a stranger made": {machine: device("", "a", ""), want: no},

		"a VM without a VM host, claimed by its hostname": {machine: vm("owner1", "a", unhosted), objects: []Object{{"ns", "a", ""}}, want: no},
		"claimed by system id":                            {machine: metal("owner1", "a"), objects: []Object{{"ns", "a", "id-a"}}, want: no},
		"claimed by another user's":                       {machine: metal("owner1", "a"), objects: []Object{{"other", "z", "id-a"}}, want: no},
		"claimed before it is recorded":                   {machine: metal("owner1", "a"), objects: []Object{{"ns", "a", ""}}, want: no},
		"a VM, claimed by its hostname":                   {machine: vm("owner1", "a"), objects: []Object{{"ns", "a", ""}}, want: no},
		"a VM that came back":                             {machine: vm("owner1", "a"), objects: []Object{{"ns", "a", "id-gone"}}, want: no},
		"a VM with a dot in its name":                     {machine: vm("owner1", "a.b"), objects: []Object{{"ns", "a.b", ""}}, want: no},
		"of a cluster that is paused":                     {machine: metal("owner2", "a"), want: no},
		"a VM of a cluster that is paused":                {machine: vm("owner2", "a"), want: no},
		"on its way back":                                 {machine: metal("owner1", "a", inState(maas.StatusReleasing)), want: no},
		"being erased":                                    {machine: metal("owner1", "a", inState(maas.StatusDiskErasing)), want: no},
		"back in the pool":                                {machine: metal("owner1", "a", noOwner, inState(maas.StatusReady)), want: no},

		"of another management cluster":                    {machine: metal("owner9", "a", annotate(ownership.AnnotationManagement, elsewhere)), want: no},
		"of a cluster that nobody knows":                   {machine: metal("owner9", "a", annotate(ownership.AnnotationManagement, "")), want: no},
		"a VM of a cluster that nobody knows":              {machine: vm("owner9", "a"), want: no},
		"bare metal with a hostname like a VM's":           {machine: vm("owner1", "a", func(m *maas.Machine) { m.Pod = nil }), want: no},
		"a stranger":                                       {machine: &maas.Machine{SystemID: "x", Hostname: "stranger", Status: maas.StatusDeployed, Owner: "bob"}, want: no},
		"a VM like bare metal, back in the pool":           {machine: vm("owner1", "a", annotate(ownership.AnnotationOwner, "owner1"), func(m *maas.Machine) { m.Hostname = "web" }), want: no},
		"a stranger's VM":                                  {machine: vm("", "a", func(m *maas.Machine) { m.Hostname = "web" }), want: no},
		"a stranger's VM with a dash":                      {machine: vm("", "a", func(m *maas.Machine) { m.Hostname = "web-1" }), want: no},
		"gone cluster of another manager's namespace":      {machine: metal("owner9", "a"), watched: "other", want: no},
		"gone cluster of this management cluster":          {machine: metal("owner9", "a"), want: doubtful},
		"gone cluster of the manager's own namespace":      {machine: metal("owner9", "a"), watched: "ns", want: doubtful},
		"marked by another management cluster, known here": {machine: metal("owner1", "a", annotate(ownership.AnnotationManagement, elsewhere)), want: doubtful},
	} {
		t.Run(name, func(t *testing.T) {
			claims := NewClaims(here, tc.watched, []Cluster{alive, frozen, {Namespace: "ns", Name: "new"}}, tc.objects)
			found, notOrphan := claims.Judge(tc.machine)
			got := no
			switch {
			case notOrphan == "" && found.Doubt == "":
				got = proven
			case notOrphan == "":
				got = doubtful
			}
			if got != tc.want {
				t.Fatalf("it is %q (notOrphan: %q, doubt: %q), want %q", got, notOrphan, found.Doubt, tc.want)
			}
			if got != no && (len(found.Proof) < 2 || slices.Contains(found.Proof, "")) {
				t.Errorf("the proof is %q; want whose it is and that nothing claims it", found.Proof)
			}
			if audited := claims.Audit([]*maas.Machine{tc.machine}); (len(audited) == 1) != (got != no) {
				t.Errorf("the audit finds %d", len(audited))
			}
		})
	}
}

func TestWithoutItsOwnIDAManagementClusterKnowsNothingByThatMark(t *testing.T) {
	claims := NewClaims("", "", []Cluster{alive}, nil)
	if f, notOrphan := claims.Judge(metal("owner9", "a", annotate(ownership.AnnotationManagement, ""))); notOrphan == "" {
		t.Errorf("a machine without the mark is taken for one with it: %v", f)
	}
	if f, notOrphan := claims.Judge(metal("owner1", "a")); notOrphan != "" || f.Doubt == "" {
		t.Errorf("a mark that can't be told apart is no reason for doubt: %v %q", f, notOrphan)
	}
}

func TestProofNamesTheMarks(t *testing.T) {
	claims := NewClaims(here, "", []Cluster{alive}, []Object{{"ns", "b", "id-other"}})
	for _, tc := range []struct {
		machine *maas.Machine
		want    []string
	}{
		{metal("owner1", "a"), []string{ownership.AnnotationOwner + "=owner1", "ns/c1", here, "id-a", "ns/a"}},
		{metal("owner1", "b"), []string{"id-b", "ns/b", "id-other"}},
		{vm("owner1", "a"), []string{"lxd-a", maas.HostnameSuffixes("owner1")[0], "owner1", "ns/c1", "id-a", "ns/a"}},
		{vm("owner1", "a.b"), []string{"lxd-a", maas.HostnameSuffixes("owner1")[1], "owner1", "ns/c1", "id-a.b", "the hostname a-b-"}},
		{metal("owner9", "a"), []string{ownership.AnnotationManagement + "=" + here, "owner9"}},
	} {
		found, notOrphan := claims.Judge(tc.machine)
		if notOrphan != "" {
			t.Errorf("%s is notOrphan: %s", tc.machine.Hostname, notOrphan)
		}
		all := strings.Join(found.Proof, "\n")
		for _, want := range tc.want {
			if !strings.Contains(all, want) {
				t.Errorf("the proof of %s does not name %s:\n%s", tc.machine.Hostname, want, all)
			}
		}
	}
}

func TestTheAgentNameThatMAASMustHaveRecorded(t *testing.T) {
	claims := NewClaims(here, "", []Cluster{alive}, nil)
	for name, tc := range map[string]struct {
		machine *maas.Machine
		want    string
	}{
		"deployed":                             {metal("owner1", "a.b"), "capmaas/owner1/a.b"},
		"broken":                               {metal("owner1", "a", inState(maas.StatusBroken)), "capmaas/owner1/a"},
		"the release failed":                   {metal("owner1", "a", inState(maas.StatusReleasingFailed)), ""},
		"a VM nobody acquired":                 {vm("owner1", "a"), ""},
		"a VM that commissions":                {vm("owner1", "a", inState(maas.StatusCommissioning)), ""},
		"a VM that is deployed":                {vm("owner1", "a", inState(maas.StatusDeployed)), "capmaas/owner1/a"},
		"a VM whose release failed":            {vm("owner1", "a", inState(maas.StatusReleasingFailed)), "capmaas/owner1/a"},
		"a VM that another user has allocated": {vm("owner1", "a", inState(maas.StatusAllocated)), "capmaas/owner1/a"},
		"a VM that another user allocated and had in rescue mode": {vm("owner1", "a", inState(maas.StatusAllocated), ownedBy("")), "capmaas/owner1/a"},
		"a VM in rescue mode":              {vm("owner1", "a", inState(maas.StatusRescueMode)), "capmaas/owner1/a"},
		"a VM that another user holds":     {vm("owner1", "a", ownedBy("bob")), "capmaas/owner1/a"},
		"a VM that bob commissions":        {vm("owner1", "a", inState(maas.StatusCommissioning), ownedBy("bob")), ""},
		"a VM that failed commissioning":   {vm("owner1", "a", inState(maas.StatusFailedCommissioning), ownedBy("bob")), ""},
		"a VM that is tested":              {vm("owner1", "a", inState(maas.StatusTesting), ownedBy("bob")), ""},
		"a VM that failed a test":          {vm("owner1", "a", inState(maas.StatusFailedTesting), ownedBy("bob")), ""},
		"a deployed VM that is tested":     {vm("owner1", "a", inState(maas.StatusTesting), ownedBy("bob"), deployed), "capmaas/owner1/a"},
		"a deployed VM that failed a test": {vm("owner1", "a", inState(maas.StatusFailedTesting), ownedBy("bob"), deployed), "capmaas/owner1/a"},
		"a marked VM that is tested":       {vm("owner1", "a", inState(maas.StatusTesting), ownedBy("bob"), annotate("juju-model", "m")), "capmaas/owner1/a"},
		"bare metal that is commissioned":  {metal("owner1", "a", inState(maas.StatusCommissioning)), "capmaas/owner1/a"},
		"a broken VM that nobody has":      {vm("owner1", "a", inState(maas.StatusBroken)), ""},
		"a broken VM with our marks": {vm("owner1", "a", inState(maas.StatusBroken), ownedBy("bob"),
			annotate(ownership.AnnotationOwner, "owner1"), annotate(ownership.AnnotationMachine, "ns.a")), ""},
		"a broken VM of another user": {vm("owner1", "a", inState(maas.StatusBroken), ownedBy("bob")), "capmaas/owner1/a"},
	} {
		found, notOrphan := claims.Judge(tc.machine)
		if notOrphan != "" || found.AgentName() != tc.want {
			t.Errorf("%s: %q (notOrphan: %q), want %q", name, found.AgentName(), notOrphan, tc.want)
		}
	}
}

// MAAS shows of a machine what no machine is. It may be ours: it is told of, and nothing removes it.
func TestAMachineThatMAASShowsBadlyIsInDoubt(t *testing.T) {
	unreadable := func(m *maas.Machine) { m.Unreadable, m.Owner = true, "" }
	for name, tc := range map[string]struct {
		machine *maas.Machine
		objects []Object
		is      bool
	}{
		"nothing of it can be read":     {machine: &maas.Machine{Unreadable: true}, is: true},
		"its name can":                  {machine: &maas.Machine{Unreadable: true, SystemID: "x", Hostname: "metal-a"}, is: true},
		"our marks can":                 {machine: metal("owner1", "a", unreadable), is: true},
		"its system id can, claimed":    {machine: &maas.Machine{Unreadable: true, SystemID: "id-a"}, objects: []Object{{"ns", "a", "id-a"}}},
		"our marks can, claimed":        {machine: metal("owner1", "a", unreadable), objects: []Object{{"ns", "a", ""}}},
		"our marks can, it is paused":   {machine: metal("owner2", "a", unreadable)},
		"its hostname can, and is ours": {machine: vm("owner1", "a", unreadable), is: true},
	} {
		t.Run(name, func(t *testing.T) {
			found := NewClaims(here, "", []Cluster{alive, frozen}, tc.objects).Audit([]*maas.Machine{tc.machine})
			if (len(found) == 1) != tc.is {
				t.Fatalf("found: %+v", found)
			}
			if !tc.is {
				return
			}
			// MAAS could not answer a list of it, either: without a client, Recorded would fail.
			stand, err := Recorded(t.Context(), nil, found)
			if err != nil || len(stand) != 1 || stand[0].Doubt == "" || len(stand[0].Removal()) > 0 || len(stand[0].Hints()) == 0 || len(stand[0].Proof) == 0 {
				t.Errorf("it is %+v (%v), want it in doubt, and no command", stand, err)
			}
		})
	}
}

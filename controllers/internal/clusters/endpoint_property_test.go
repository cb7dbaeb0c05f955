// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
)

const (
	// endpointSeed is the environment variable with the seed of the one life to replay.
	endpointSeed = "CAPMAAS_ENDPOINT_SEED"

	lives, stepsOfALife = 400, 150
	maxPlanes           = 5
)

// The lives of clusters are random; after each step the record must keep its promises.
func TestThePromisesOfTheEndpointHold(t *testing.T) {
	if text := os.Getenv(endpointSeed); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", endpointSeed, err)
		}
		t.Logf("the life of seed %d:\n%s", seed, strings.Join(liveWith(t, seed).story, "\n"))
		return
	}
	written := 0
	for seed := range uint64(lives) {
		r := liveWith(t, seed)
		written += r.written
		if t.Failed() {
			return
		}
	}
	if written < lives {
		t.Errorf("the record was written %d times in %d lives: too rarely to prove anything", written, lives)
	}
}

// liveWith runs the life of one cluster, and ends at the first broken promise.
func liveWith(t *testing.T, seed uint64) *rehearsal {
	t.Helper()
	r := &rehearsal{random: rand.New(rand.NewPCG(seed, 0))}
	for range stepsOfALife {
		event := happenings[r.random.IntN(len(happenings))]
		before := slices.Clone(r.record)
		what := event(r)
		if what == "" {
			continue
		}
		if what == byHand {
			before = slices.Clone(r.record) // The provider did not make a person's change.
		}
		r.record = dns.Next(r.record, endpointAddresses(t.Context(), r, r.cluster(), r.maasMachines(), nil, isShown, r.record, testNow))
		r.story = append(r.story, fmt.Sprintf("%3d %8v %-34s %v -> %v", len(r.story), r.now, what, before, r.record))
		if !slices.Equal(before, r.record) {
			r.written++
		}
		if broken := r.broken(before); broken != "" {
			t.Errorf("seed %d: %s\n%s\nreplay: %s=%d go test ./controllers/internal/clusters -run '^%s$'",
				seed, broken, strings.Join(r.story, "\n"), endpointSeed, seed, t.Name())
			break
		}
	}
	return r
}

// plane is a control plane: its real state, and its known one.
type plane struct {
	member
	provisioned, off, lost, deleting bool
	// unseen: its status was lost, and MAAS was not asked since.
	unseen bool
	// since is when MAAS first reported it off.
	since *time.Duration
}

func (p *plane) address() string { return "10.0.0." + p.name }

// leaving reports whether the record must no longer send clients to it.
func (p *plane) leaving() bool { return p.draining || p.deleting || p.lost }

// rehearsal is a cluster, and a fake client for reads about it.
type rehearsal struct {
	client.Client // only Get is called

	random *rand.Rand
	now    time.Duration
	planes []*plane
	// initialized is the Cluster's condition; everJoined is the truth.
	initialized, everJoined bool
	// away: MAAS can't be read. down: nor can Kubernetes.
	away, down bool

	record  []string
	story   []string
	written int
}

// byHand is the only happening that a person causes.
const byHand = "a person edits the record"

// happenings return what they did, or "" if they did nothing. A happening that is listed twice happens twice as often.
var happenings = []func(*rehearsal) string{
	(*rehearsal).create, (*rehearsal).create, (*rehearsal).provision, (*rehearsal).provision, (*rehearsal).join, (*rehearsal).join,
	(*rehearsal).power, (*rehearsal).power, (*rehearsal).allOff, (*rehearsal).allOn, (*rehearsal).wait, (*rehearsal).wait,
	(*rehearsal).lose, (*rehearsal).drain, (*rehearsal).remove, (*rehearsal).end, (*rehearsal).end,
	(*rehearsal).move, (*rehearsal).see, (*rehearsal).see, (*rehearsal).see, (*rehearsal).findNodes,
	(*rehearsal).maasStops, (*rehearsal).maasReturns, (*rehearsal).maasReturns,
	(*rehearsal).kubernetesStops, (*rehearsal).kubernetesReturns, (*rehearsal).kubernetesReturns, (*rehearsal).edit,
}

// one picks a control plane that meets the condition.
func (r *rehearsal) one(condition func(*plane) bool) *plane {
	var found []*plane
	for _, p := range r.planes {
		if condition(p) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[r.random.IntN(len(found))]
}

// change does something to a control plane that meets the condition.
func (r *rehearsal) change(what string, condition func(*plane) bool, do func(*plane)) string {
	p := r.one(condition)
	if p == nil {
		return ""
	}
	do(p)
	r.observe()
	return p.name + " " + what
}

// observe copies MAAS's state of the control planes, while MAAS can be read.
func (r *rehearsal) observe() {
	for _, p := range r.planes {
		p.unread = r.away
		switch {
		case r.away || !p.off && !p.lost:
			p.since = nil
		case p.since == nil:
			p.since = ptr.To(r.now)
		}
	}
}

// create adds a control plane. It may get the former address of another one.
func (r *rehearsal) create() string {
	if len(r.planes) >= maxPlanes {
		return ""
	}
	name := strconv.Itoa(1 + r.random.IntN(2*maxPlanes))
	if slices.ContainsFunc(r.planes, func(p *plane) bool { return p.name == name }) {
		return ""
	}
	r.planes = append(r.planes, &plane{member: member{name: name}})
	return name + " is created"
}

func (r *rehearsal) provision() string {
	return r.change("is provisioned", func(p *plane) bool { return !p.provisioned && !r.away && !p.draining }, func(p *plane) { p.provisioned = true })
}

func (r *rehearsal) join() string {
	return r.change("joins", func(p *plane) bool { return p.provisioned && !p.joined && !p.off && !p.leaving() }, func(p *plane) {
		p.joined, r.initialized, r.everJoined = true, true, true
	})
}

func (r *rehearsal) power() string {
	return r.change("is switched off or on", func(p *plane) bool { return p.provisioned && !p.lost }, func(p *plane) { p.off = !p.off })
}

func (r *rehearsal) allOff() string { return r.switchAll("all are switched off", true) }
func (r *rehearsal) allOn() string  { return r.switchAll("all are switched on", false) }

func (r *rehearsal) switchAll(what string, off bool) string {
	for _, p := range r.planes {
		p.off = off && p.provisioned
	}
	r.observe()
	return what
}

func (r *rehearsal) wait() string {
	passed := []time.Duration{10 * time.Second, EndpointHold / 3, EndpointHold - time.Second, EndpointHold, time.Hour}
	r.now += passed[r.random.IntN(len(passed))]
	return "time passes"
}

func (r *rehearsal) lose() string {
	return r.change("is lost", func(p *plane) bool { return p.provisioned && !r.away && r.random.IntN(3) == 0 }, func(p *plane) {
		p.lost, p.unseen = true, false
	})
}

func (r *rehearsal) drain() string {
	return r.change("is drained", func(p *plane) bool { return !p.draining }, func(p *plane) { p.draining = true })
}

func (r *rehearsal) remove() string {
	return r.change("is being deleted", func(p *plane) bool { return !p.deleting && (p.draining || r.random.IntN(4) == 0) }, func(p *plane) { p.deleting = true })
}

// end removes an object. Cluster API has seen the cluster's Nodes before it lets the last control plane be removed.
func (r *rehearsal) end() string {
	return r.change("is gone", func(p *plane) bool { return p.deleting }, func(p *plane) {
		r.initialized = r.initialized || p.joined
		r.planes = slices.DeleteFunc(r.planes, func(other *plane) bool { return other == p })
	})
}

// move does what `clusterctl move` does: all status is lost. clusterctl moves no cluster that has no Node.
func (r *rehearsal) move() string {
	if r.one(func(p *plane) bool { return p.joined }) == nil {
		return ""
	}
	for _, p := range r.planes {
		p.unseen = true
	}
	r.initialized = false
	return "the cluster is moved"
}

func (r *rehearsal) see() string {
	return r.change("is seen again", func(p *plane) bool { return p.unseen && !r.away }, func(p *plane) { p.unseen = false })
}

func (r *rehearsal) findNodes() string {
	r.initialized = r.initialized || r.one(func(p *plane) bool { return p.joined }) != nil
	return "Cluster API finds Nodes"
}

func (r *rehearsal) maasStops() string {
	r.away = true
	r.observe()
	return "MAAS is down"
}

func (r *rehearsal) maasReturns() string {
	r.away = false
	r.observe()
	return "MAAS is back"
}

func (r *rehearsal) kubernetesStops() string   { r.down = true; return "Kubernetes is down" }
func (r *rehearsal) kubernetesReturns() string { r.down = false; return "Kubernetes is back" }

// edit writes anything into the record, also addresses of nothing, and no address.
func (r *rehearsal) edit() string {
	r.record = nil
	if r.random.IntN(2) == 0 {
		r.record = append(r.record, "192.0.2.1")
	}
	for _, p := range r.planes {
		if r.random.IntN(2) == 0 {
			r.record = append(r.record, p.address())
		}
	}
	return byHand
}

var errKubernetesIsDown = errors.New("down")

// Get returns the Machine of a control plane.
func (r *rehearsal) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if r.down {
		return errKubernetesIsDown
	}
	for _, p := range r.planes {
		if p.name == key.Name {
			machine, _ := p.objects()
			machine.DeepCopyInto(into.(*clusterv1.Machine))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, key.Name)
}

func (r *rehearsal) cluster() *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{}
	if r.initialized {
		cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	}
	return cluster
}

// maasMachines returns the MaasMachines as Kubernetes has them now.
func (r *rehearsal) maasMachines() (list []infrav1.MaasMachine) {
	for _, p := range r.planes {
		known := p.member
		if p.since != nil {
			known.stopped = r.now - *p.since + 1 // Never 0.
		}
		_, m := known.objects()
		switch {
		case !p.provisioned:
			m.Spec.ProviderID, m.Status = "", infrav1.MaasMachineStatus{}
		case p.unseen:
			m.Status = infrav1.MaasMachineStatus{}
		case p.lost:
			m.Status.Addresses, m.Status.FailureReason = nil, infrav1.MachineMissingReason
		}
		if p.deleting {
			m.DeletionTimestamp = ptr.To(metav1.Now())
		}
		list = append(list, m)
	}
	return list
}

// broken returns which promise the step from one record to the next has broken; "" if none.
func (r *rehearsal) broken(before []string) string {
	after := r.record
	unknown := r.down && len(r.planes) > 0 || r.one(func(p *plane) bool { return p.provisioned && p.unseen && !p.deleting }) != nil
	switch {
	case len(before) > 0 && len(after) == 0:
		return "the record was emptied"
	case unknown && !slices.Equal(before, after):
		return "the record was changed although facts are unknown"
	case unknown:
		return ""
	}
	for _, address := range after {
		if wrong := r.notAllowedIn(address, slices.Contains(before, address)); wrong != "" {
			return address + " " + wrong
		}
	}
	for _, p := range r.planes {
		if wrong := r.notAllowedOut(p, before); wrong != "" && !slices.Contains(after, p.address()) {
			return p.address() + " " + wrong
		}
	}
	return ""
}

// serves reports whether a control plane is certainly able to serve the API.
func (r *rehearsal) serves(p *plane) bool {
	return p.joined && !p.leaving() && p.since == nil && !r.away
}

// notAllowedIn returns why an address may not be in the record; "" if it may.
func (r *rehearsal) notAllowedIn(address string, was bool) string {
	p := r.one(func(p *plane) bool { return p.address() == address && p.provisioned && !p.lost })
	var wrong string
	switch {
	case p == nil:
		wrong = "is no control plane's"
	case p.leaving():
		wrong = "is of a control plane that is being deleted"
	case p.since != nil && (!was || r.now-*p.since >= EndpointHold):
		wrong = "is of a control plane that does not run"
	case !was && r.away:
		wrong = "came in while MAAS could not be asked"
	case !was && !p.joined && r.everJoined:
		wrong = "is of a control plane that never joined"
	}
	if was && r.one(r.serves) == nil {
		return "" // There may be no other control plane.
	}
	return wrong
}

// notAllowedOut returns why a control plane's address may not be missing from the record; "" if it may.
func (r *rehearsal) notAllowedOut(p *plane, before []string) string {
	switch was := slices.Contains(before, p.address()); {
	case !p.provisioned || p.leaving():
		return ""
	case was && (p.since == nil || r.now-*p.since < EndpointHold):
		return "was taken out, though its control plane runs or did so a moment ago"
	case r.serves(p):
		return "is missing, though its control plane serves"
	}
	return ""
}

// Each happening of the rehearsal has the effect that it returns.
func TestHappeningsOfTheRehearsalHaveTheirEffects(t *testing.T) {
	r := &rehearsal{planes: []*plane{
		{member: member{name: "1"}, provisioned: true, since: ptr.To(time.Duration(0))},
		{member: member{name: "2"}, provisioned: true, unseen: true}, {member: member{name: "3"}},
		{member: member{name: "4"}, provisioned: true, lost: true}, {member: member{name: "5"}, provisioned: true, deleting: true},
	}, now: EndpointHold}
	list := r.maasMachines()
	if stopped := stoppedFor(&list[0], testNow); stopped < EndpointHold || conditions.IsTrue(&list[0], infrav1.MachineDeployedCondition) {
		t.Errorf("the first is stopped for %v", stopped)
	}
	if !provisionedButUnseen(&list[1]) || provisionedButUnseen(&list[2]) || provisionedButUnseen(&list[3]) {
		t.Error("others than the second are unseen")
	}
	if EndpointAddress(&list[2]) != "" || EndpointAddress(&list[3]) != "" || list[4].DeletionTimestamp.IsZero() {
		t.Error("a machine that is not provisioned or is lost has an address, or the last one is not being deleted")
	}
}

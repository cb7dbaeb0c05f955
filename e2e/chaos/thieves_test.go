// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// ourUser is the manager's.
	ourUser  = "admin"
	plainKey = "chaosplain:9QxLmRtVwYzBcDfGhJ:Kp4NsT7vXa2Cq8Ew5Rz6Ub3Yd1MgHjLf"
	// keptFor is how long a thief keeps a machine, and theftLimit bounds each of a thief's actions.
	keptFor    = 3 * time.Second
	theftLimit = eventually.Limit
)

// In so many of a thousand calls a thief tries to take the machine of the call: one that MAAS gives to any user, one
// that it does not, and a VM that the call made.
const (
	ofFree, ofOthers, ofMade = 300, 20, 200
)

// thieves are other users of MAAS, an administrator and a plain one, who take our machines in any state, as far as MAAS
// allows, and keep them for a while. They take a machine before MAAS responds to our read of it, or when MAAS has made
// it: what is done to it afterwards was not done between a read and a call.
type thieves struct {
	a      *assault
	seed   uint64
	people []*maas.Client
	admin  *maas.Client
	subnet int
	stay   sync.WaitGroup

	mutex   sync.Mutex
	calls   map[string]uint64 // by the kind of call
	pending map[int]string    // machines that calls are about which MAAS has not done yet, by their numbers
	has     map[string]bool   // by system id
}

func newThieves(ctx context.Context, a *assault) (*thieves, error) {
	t := &thieves{a: a, seed: uint64(attack.seed), calls: map[string]uint64{}, pending: map[int]string{}, has: map[string]bool{}}
	for _, key := range []string{othersKey, plainKey} {
		client, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: key})
		if err != nil {
			return nil, fmt.Errorf("a thief's client: %w", err)
		}
		t.people = append(t.people, client)
	}
	t.admin = t.people[0]
	subnets, err := t.admin.ListSubnets(ctx)
	if err != nil {
		return nil, fmt.Errorf("a thief's subnet: %w", err)
	}
	t.subnet = subnets[0].ID
	return t, nil
}

// expect sees each of our calls, and its fault: no machine is taken while MAAS is late with a change of its interfaces,
// which MAAS lets us undo only in the pool. Nothing else of ours may be under way for a machine that anybody may take.
func (t *thieves) expect(call simulator.Call, fault *simulator.Fault) {
	done := fault == nil || fault.Delay > 0
	ofInterfaces := strings.HasPrefix(call.Endpoint, "nodes/{id}/interfaces/")
	if call.User != ourUser || call.Method == http.MethodGet || call.SystemID == "" || !done || !ofInterfaces {
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.pending[call.Number] = call.SystemID
}

// hook is the simulator's hook.
func (t *thieves) hook(call simulator.Call, phase simulator.Phase) {
	if call.User != ourUser {
		return
	}
	id, share := t.target(call, phase)
	if phase == simulator.After {
		t.mutex.Lock()
		delete(t.pending, call.Number)
		t.mutex.Unlock()
	}
	if id != "" && t.dares(what(call), id, share) {
		t.take(id)
	}
}

// target is the machine that a call is about, and how often it is taken.
func (t *thieves) target(call simulator.Call, phase simulator.Phase) (systemID string, share int) {
	switch {
	case phase == simulator.After && isCompose(call):
		return call.SystemID, ofMade
	case phase == simulator.After || call.Method != http.MethodGet:
		return "", 0
	case call.Endpoint == "machines/{id}/" && call.Op == "":
		systemID = call.SystemID
	case call.Endpoint == "machines/":
		systemID = named(call.Query)
	}
	m, there := box.MAAS.Machine(systemID)
	switch {
	case !there || m.Pool == shapedPool:
		return "", 0
	case m.Status == "Ready" && m.Owner == "":
		return systemID, ofFree
	}
	return systemID, ofOthers
}

// named is the machine that a list is to find by its name alone.
func named(query string) (systemID string) {
	values, err := url.ParseQuery(query)
	if err != nil || len(values["hostname"]) != 1 {
		return ""
	}
	for _, m := range box.MAAS.Machines() {
		if m.Hostname == values.Get("hostname") {
			return m.SystemID
		}
	}
	return ""
}

// dares rolls the dice, by the seed and by how many such calls there were.
func (t *thieves) dares(what, systemID string, share int) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.calls[what]++
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "theft %s %d", what, t.calls[what])
	if rand.New(rand.NewPCG(t.seed, hash.Sum64())).IntN(1000) >= share || t.has[systemID] {
		return false
	}
	for _, busy := range t.pending {
		if busy == systemID {
			return false
		}
	}
	t.has[systemID] = true
	return true
}

// take acquires a machine, and deploys every other one. MAAS may refuse.
func (t *thieves) take(systemID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.a.t.Context()), theftLimit)
	defer cancel()
	number := t.number()
	thief := t.people[number%len(t.people)]
	m, err := thief.AllocateMachine(ctx, maas.Unrecorded("a test"), maas.AllocateParams{SystemID: systemID, AgentName: "theirs"})
	if err != nil {
		t.a.figures.add("machines that MAAS gave to no thief", 1)
		t.forget(systemID)
		return
	}
	deploys := number/len(t.people)%2 == 0
	t.a.figures.add(fmt.Sprintf("machines that a thief took (VM %t, deployed %t)", m.Pod != nil, deploys), 1)
	if err := t.settleIn(ctx, thief, m, deploys); err != nil {
		t.a.t.Error(err)
	}
	t.a.endpoints.theirs(systemID, true)
	t.stay.Go(func() { t.leave(context.WithoutCancel(ctx), thief, m) })
}

// number counts thefts.
func (t *thieves) number() int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.calls[""]++
	return int(t.calls[""])
}

func (t *thieves) forget(systemID string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.has, systemID)
}

// settleIn makes a machine the thief's. What address we had set on bare metal is none of theirs.
func (t *thieves) settleIn(ctx context.Context, thief *maas.Client, m *maas.Machine, deploys bool) error {
	if m.Pod == nil {
		if _, err := t.admin.LinkSubnet(ctx, maas.Unrecorded("a test"), m.SystemID, m.BootInterface.ID, maas.LinkParams{
			Mode: maas.LinkModeAuto, SubnetID: t.subnet, Replace: true,
		}); err != nil {
			return fmt.Errorf("a thief links %s: %w", m.SystemID, err)
		}
	}
	if deploys {
		_, err := thief.DeployMachine(ctx, maas.Unrecorded("a test"), m.SystemID, maas.DeployParams{DistroSeries: "ubuntu/jammy", AgentName: "theirs"})
		if err != nil {
			return fmt.Errorf("a thief deploys %s: %w", m.SystemID, err)
		}
	}
	if err := t.a.auditor.Took(m.SystemID); err != nil {
		return fmt.Errorf("a thief took %s: %w", m.SystemID, err)
	}
	return nil
}

// leave gives up a thief's machine after a while: bare metal is released, and a VM is deleted, on its host, too.
func (t *thieves) leave(ctx context.Context, thief *maas.Client, m *maas.Machine) {
	defer t.forget(m.SystemID)
	ctx, cancel := context.WithTimeout(ctx, theftLimit)
	defer cancel()
	if err := pause(ctx, keptFor); err != nil {
		t.a.t.Error(err)
	}
	findings, err := t.a.auditor.GivesBack(m.SystemID)
	t.a.report("when a thief gave "+m.Hostname+" back", findings, err)
	t.a.endpoints.theirs(m.SystemID, false)
	if len(findings) > 0 {
		return // It is not the thief's any more.
	}
	if m.Pod != nil {
		if err := t.admin.DeleteMachine(ctx, maas.Unrecorded("a test"), m.SystemID); err != nil {
			t.a.t.Errorf("a thief deletes %s: %v", m.SystemID, err)
		}
		box.MAAS.DeleteVM(m.Pod.Name, m.Hostname)
		return
	}
	err = eventually.Wait(ctx, "a thief's machine to be released", func() (bool, string, error) {
		now, _ := box.MAAS.Machine(m.SystemID)
		if now.Owner != m.Owner || now.Status == "Releasing" || now.Status == "Disk erasing" {
			return now.Owner != m.Owner, now.Status, nil
		}
		_, err := thief.ReleaseMachine(ctx, maas.UnrecordedRelease("a test"), m.SystemID, maas.ReleaseParams{})
		if errors.Is(err, maas.Unavailable) { // The hardware was to fail for another machine: once.
			return false, err.Error(), nil
		}
		return false, now.Status, err
	})
	if err != nil {
		t.a.t.Error(err)
	}
}

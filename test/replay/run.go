// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// permitLasts is record.sendWithin, and what a time in a record lacks: it has no fractions of a second.
	permitLasts = 15*time.Second + second
	second      = time.Second
	// patience bounds how long the API server is waited for.
	patience = eventually.Limit
)

// Options say whose run it is.
type Options struct {
	// Namespaces are those of the manager's objects.
	Namespaces []string
	// SettleTime is the manager's.
	SettleTime time.Duration
}

// Region is the part of a simulated MAAS that a run needs.
type Region interface {
	Machines() []simulator.MachineSnapshot
	Observe(simulator.Observer) (cancel func())
}

// Run is the log of a run: each version of each MaasMachine, each call that changes something, and how the machines in
// MAAS change.
type Run struct {
	client  client.WithWatch
	region  Region
	options Options
	cancel  []func()

	mu     sync.Mutex
	log    []logged
	latest map[types.NamespacedName]*infrav1.MaasMachine
	agents map[string]string // the marks of machines in MAAS, by system id
	calls  map[int]*logged   // those that have come, by number
	failed error
	seen   map[types.UID]uint64 // the newest version of each; gone objects are in ended
	ended  map[types.UID]bool
	people map[types.UID]map[string]bool // versions that people made, not the manager
	freed  map[types.UID]bool            // people have removed the finalizer
	astray []string                      // calls of the manager that are about no object's machine
}

// logged is one entry of the log.
type logged struct {
	at     time.Time
	object types.UID // of a version, or a call

	version *infrav1.MaasMachine
	gone    bool

	came, did, replied *simulator.Call
	// known is the version that the API server had when the call came.
	known uint64

	machine, before *machine
	deleted         bool
}

// machine is what is replayed of a machine.
type machine struct{ id, status, agent string }

func machineOf(m *simulator.MachineSnapshot) *machine {
	if m == nil {
		return nil
	}
	return &machine{m.SystemID, m.Status, m.AgentName}
}

// Follow begins a run. The caller ends it with Stop.
func Follow(ctx context.Context, region Region, c client.WithWatch, options Options) (*Run, error) {
	follows(region)
	r := &Run{client: c, region: region, options: options, latest: map[types.NamespacedName]*infrav1.MaasMachine{},
		agents: map[string]string{}, calls: map[int]*logged{}, seen: map[types.UID]uint64{}, ended: map[types.UID]bool{},
		people: map[types.UID]map[string]bool{}, freed: map[types.UID]bool{}}
	for _, namespace := range options.Namespaces {
		if err := r.follow(ctx, namespace); err != nil {
			r.Stop()
			return nil, err
		}
	}
	r.cancel = append(r.cancel, region.Observe(simulator.Observer{
		Came: r.came, Did: r.did, Replied: r.replied,
		Changed: func(m simulator.MachineSnapshot, deleted bool) {
			r.add(logged{machine: machineOf(&m), deleted: deleted})
		},
	}))
	for _, m := range region.Machines() {
		r.add(logged{machine: machineOf(&m)})
	}
	return r, nil
}

// follow watches the MaasMachines of one namespace. A watch shows each version, in order.
func (r *Run) follow(ctx context.Context, namespace string) error {
	list := &infrav1.MaasMachineList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the MaasMachines that are followed: %w", err)
	}
	for i := range list.Items {
		r.version(&list.Items[i], false)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	events, err := r.client.Watch(ctx, &infrav1.MaasMachineList{}, client.InNamespace(namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		cancel()
		return fmt.Errorf("watching the MaasMachines that are followed: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range events.ResultChan() {
			m, is := event.Object.(*infrav1.MaasMachine)
			if !is {
				r.fail(fmt.Errorf("the watch of MaasMachines ended: %v", event.Object))
				continue
			}
			r.version(m, event.Type == watch.Deleted)
		}
		if ctx.Err() == nil {
			r.fail(fmt.Errorf("the watch of MaasMachines in %s ended", namespace))
		}
	}()
	r.cancel = append(r.cancel, func() {
		cancel()
		events.Stop()
		<-ended
	})
	return nil
}

func (r *Run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

// Stop ends a run.
func (r *Run) Stop() {
	for _, cancel := range r.cancel {
		cancel()
	}
}

func (r *Run) add(l logged) {
	l.at = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.machine != nil {
		r.agents[l.machine.id] = l.machine.agent
	}
	r.log = append(r.log, l)
}

func (r *Run) version(m *infrav1.MaasMachine, gone bool) {
	r.add(logged{object: m.UID, version: m, gone: gone})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest[client.ObjectKeyFromObject(m)] = m
	r.seen[m.UID] = versionOf(m)
	r.ended[m.UID] = gone
}

func versionOf(m *infrav1.MaasMachine) uint64 {
	n, _ := strconv.ParseUint(m.ResourceVersion, 10, 64) // The API server's are numbers.
	return n
}

// came is told of a call before MAAS does anything. The API server says which version of the object there is by now: so
// each call has its place among the versions. What a test asks MAAS for itself has no user agent.
func (r *Run) came(call simulator.Call) {
	if call.UserAgent == "" || call.DryRun || opsOf(call) == nil {
		return
	}
	key, found := r.objectOf(call)
	if !found {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now := &infrav1.MaasMachine{}
	err := r.client.Get(ctx, key, now)
	if client.IgnoreNotFound(err) != nil {
		r.fail(fmt.Errorf("reading the MaasMachine of a call: %w", err))
		return
	}
	r.mu.Lock()
	l := logged{object: now.UID, came: &call, known: versionOf(now)}
	if err != nil { // It is gone: its last version is the one that a watch shows.
		l.object, l.known = r.latest[key].UID, ^uint64(0)
	}
	r.calls[call.Serial] = &l
	r.mu.Unlock()
	r.add(l)
}

// objectOf returns for which MaasMachine a call is: by the mark that it asks for, or that the machine has; else by who
// has the machine, or gives it back.
func (r *Run) objectOf(call simulator.Call) (key types.NamespacedName, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mark, isMachine := r.agents[call.SystemID]
	if call.AgentName != "" {
		mark, isMachine = call.AgentName, true
	}
	if !isMachine {
		return key, false // A device.
	}
	keeps := false
	for key, m := range r.latest {
		owner := m.Annotations[infrav1.OwnerIDAnnotation]
		if mark != "" && (mark == ownership.AgentName(owner, m.Name) ||
			(owner == "" && strings.HasSuffix(mark, "/"+m.Name))) { // The version with the mark has not come yet.
			return key, true
		}
		keeps = keeps || m.Spec.Release.Keep != nil
	}
	if mark != "" && isShared(r.region) {
		return key, false // It is of another manager's object, though one here may name the same machine.
	}
	for key, m := range r.latest {
		data, err := record.OfMachine(m)
		if call.SystemID != "" && err == nil && !r.ended[m.UID] &&
			(m.Spec.SystemID == call.SystemID || slices.Contains(data.Unused, call.SystemID)) {
			return key, true
		}
	}
	if !keeps { // What the cluster keeps, it gives back itself.
		r.astray = append(r.astray, fmt.Sprintf("%s %s?op=%s (mark %q)", call.Method, call.Path, call.Op, mark))
	}
	return key, false
}

// followed are how many runs there were in each MAAS: of several, each has the calls of all managers.
var followed struct {
	sync.Mutex
	runs map[Region]int
}

func follows(region Region) {
	followed.Lock()
	defer followed.Unlock()
	if followed.runs == nil {
		followed.runs = map[Region]int{}
	}
	followed.runs[region]++
}

func isShared(region Region) bool {
	followed.Lock()
	defer followed.Unlock()
	return followed.runs[region] > 1
}

// People says that an object is as people, or a test in their place, have changed it just now.
func (r *Run) People(m *infrav1.MaasMachine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.people[m.UID] == nil {
		r.people[m.UID] = map[string]bool{}
	}
	r.people[m.UID][m.ResourceVersion] = true
	if r.latest[client.ObjectKeyFromObject(m)] != nil && !controllerutil.ContainsFinalizer(m, infrav1.MachineFinalizer) {
		r.freed[m.UID] = true
	}
}

func (r *Run) did(call simulator.Call, before, after *simulator.MachineSnapshot) {
	r.mu.Lock()
	came := r.calls[call.Serial]
	r.mu.Unlock()
	l := logged{did: &call, before: machineOf(before), machine: machineOf(after)}
	if came != nil {
		l.object = came.object
	}
	if after != nil {
		r.add(l)
	}
}

func (r *Run) replied(call simulator.Call) {
	r.mu.Lock()
	came := r.calls[call.Serial]
	r.mu.Unlock()
	if came != nil {
		r.add(logged{object: came.object, replied: &call})
	}
}

// opsOf returns as which operation a call may be recorded; nil: it is none that is replayed.
func opsOf(call simulator.Call) []string {
	switch {
	case call.Endpoint == "machines/" && call.Op == "allocate" && call.Asked == "":
		return []string{allocate}
	case call.Endpoint == "machines/" && call.Op == "allocate":
		return []string{claim, allocate, takeOver}
	case call.Endpoint == "machines/{id}/" && call.Op == "deploy":
		return []string{deploy}
	case call.Endpoint == "machines/{id}/" && call.Op == "release":
		return []string{release, takeOver}
	case strings.HasPrefix(call.Endpoint, "nodes/{id}/interfaces/"):
		return []string{link, "interfaces", "bridge"}
	}
	return nil
}

// Logs returns the events of all objects that are in a model, once the manager has stopped.
func (r *Run) Logs(ctx context.Context) (logs []Log, err error) {
	if err := r.complete(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	objects := map[types.UID]*infrav1.MaasMachine{}
	var order []types.UID
	for _, l := range r.log {
		if l.version != nil {
			if objects[l.object] == nil {
				order = append(order, l.object)
			}
			objects[l.object] = l.version
		}
	}
	if len(r.astray) > 0 && !isShared(r.region) {
		return nil, fmt.Errorf("calls that are about the machine of no MaasMachine: %s", strings.Join(r.astray, "; "))
	}
	for _, uid := range order {
		table := tableOf(objects[uid])
		reader := &runReader{log: r.log, uid: uid, table: table, isVM: objects[uid].Spec.IsLXD(),
			settle: r.options.SettleTime, people: r.people[uid], freed: r.freed[uid]}
		events, err := reader.events()
		if err != nil {
			return nil, err
		}
		logs = append(logs, Log{Model: table.Model, Object: client.ObjectKeyFromObject(objects[uid]).String(),
			Events: events})
	}
	return logs, nil
}

// tableOf returns which table an object is held against.
func tableOf(m *infrav1.MaasMachine) *Table {
	if m.Spec.IsLXD() || m.Spec.Release.Keep != nil {
		return Protocol
	}
	return Metal
}

// complete waits until the watches have shown all that there is.
func (r *Run) complete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		behind := ""
		there := map[types.UID]bool{}
		for _, namespace := range r.options.Namespaces {
			list := &infrav1.MaasMachineList{}
			if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("listing the MaasMachines that were followed: %w", err)
			}
			for i := range list.Items {
				m := &list.Items[i]
				there[m.UID] = true
				r.mu.Lock()
				if r.seen[m.UID] < versionOf(m) {
					behind = m.Name
				}
				r.mu.Unlock()
			}
		}
		r.mu.Lock()
		for uid, gone := range r.ended {
			if !gone && !there[uid] {
				behind = string(uid)
			}
		}
		failed := r.failed
		r.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case behind == "":
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the watch did not show the newest version of MaasMachine %s: %w", behind, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// runReader makes events of one object of a log.
type runReader struct {
	log    []logged
	uid    types.UID
	table  *Table
	isVM   bool // what changes a VM in MAAS needs no record
	settle time.Duration
	people map[string]bool // the versions that people made
	freed  bool            // people have removed the finalizer
	byThem bool            // the version that is read is theirs

	versions []int // the places of the object's versions in the log
	marks    map[string]bool
	relevant map[string]bool
	machines map[string]Look
	now      *infrav1.MaasMachine
	data     record.MachineData
	finished bool
	sent     map[int]string // which operation a call is of
	used     map[string]bool
	list     []Event
}

func (r *runReader) add(at time.Time, e Event) {
	e.At, e.People = at, r.byThem
	r.list = append(r.list, e)
}

func (r *runReader) events() ([]Event, error) {
	r.marks, r.relevant = map[string]bool{}, map[string]bool{}
	r.machines, r.sent, r.used = map[string]Look{}, map[int]string{}, map[string]bool{}
	for i, l := range r.log {
		if l.version == nil || l.object != r.uid {
			continue
		}
		r.versions = append(r.versions, i)
		r.marks[ownership.AgentName(l.version.Annotations[infrav1.OwnerIDAnnotation], l.version.Name)] = true
		r.relevant[l.version.Spec.SystemID] = true
		data, err := record.OfMachine(l.version)
		if err != nil {
			return nil, fmt.Errorf("reading a record: %w", err)
		}
		for _, id := range data.Unused {
			r.relevant[id] = true
		}
	}
	for _, l := range r.log {
		if l.machine != nil && r.marks[l.machine.agent] {
			r.relevant[l.machine.id] = true
		}
	}
	for i, l := range r.log {
		if err := r.read(i, &l); err != nil {
			return nil, err
		}
	}
	return r.list, nil
}

func (r *runReader) read(i int, l *logged) error {
	switch {
	case l.version != nil:
		if l.object == r.uid {
			return r.versionsUpTo(i)
		}
	case l.came != nil:
		if l.object == r.uid {
			if err := r.knownUpTo(l); err != nil {
				return err
			}
			r.sends(l)
		}
	case l.did != nil:
		op, ours := r.sent[l.did.Serial]
		ours = ours && l.object == r.uid
		if ours && l.did.Status < 300 {
			look := Look{Status: Ready}
			if l.before != nil {
				look = r.look(l.before, false)
			}
			r.add(l.at, Event{Kind: Does, Op: op, Machine: l.machine.id, Look: look})
		}
		r.machine(l, ours)
	case l.replied != nil:
		if op, ours := r.sent[l.replied.Serial]; ours && l.object == r.uid {
			r.add(l.at, Event{Kind: Answered, Op: op})
		}
	case l.machine != nil:
		r.machine(l, false)
	}
	return nil
}

// look returns what a machine is to the object. MAAS removes the mark when a release begins, and the owner when it
// ends.
func (r *runReader) look(m *machine, deleted bool) Look {
	look := Look{Status: statusOf(m.status), Marked: r.marks[m.agent]}
	before := r.machines[m.id]
	look.Owned = look.Marked || (before.Owned && m.agent == "" && look.Status != Ready)
	if deleted {
		return Look{Status: Gone}
	}
	return look
}

func statusOf(status string) Status {
	switch status {
	case "Ready", "New":
		return Ready
	case "Allocated", "Deploying", "Deployed":
		return Status(status)
	case "Releasing", "Disk erasing":
		return InRelease
	}
	return Other
}

func (r *runReader) machine(l *logged, byUs bool) {
	id := l.machine.id
	look := r.look(l.machine, l.deleted)
	before, known := r.machines[id]
	r.machines[id] = look
	if r.relevant[id] && r.now != nil && (!known || before != look || byUs) {
		r.add(l.at, Event{Kind: Machine, Machine: id, Look: look, On: byUs})
	}
}

// knownUpTo reads the versions that the API server had when a call came, also those that the watch showed later.
func (r *runReader) knownUpTo(l *logged) error {
	for len(r.versions) > 0 {
		v := r.log[r.versions[0]]
		if versionOf(v.version) > l.known || (v.gone && l.known != ^uint64(0)) {
			break
		}
		r.versions = r.versions[1:]
		if err := r.version(&v, l.at); err != nil {
			return err
		}
	}
	return nil
}

func (r *runReader) versionsUpTo(i int) error {
	for len(r.versions) > 0 && r.versions[0] <= i {
		v := r.log[r.versions[0]]
		r.versions = r.versions[1:]
		if err := r.version(&v, v.at); err != nil {
			return err
		}
	}
	return nil
}

// sends is a call. A call that is recorded again within the same second leaves the record as it was.
func (r *runReader) sends(l *logged) {
	if r.isVM {
		return
	}
	ops := opsOf(*l.came)
	op := ops[0]
	newest := time.Time{}
	for _, p := range r.data.Pending {
		if slices.Contains(ops, string(p.Op)) && !p.At.Time.Before(newest) {
			op, newest = string(p.Op), p.At.Time
		}
	}
	for _, p := range r.data.Pending {
		if string(p.Op) == op && r.used[op] && !l.at.After(p.At.Add(2*second)) && !slices.Contains(r.table.Several, op) {
			r.records(l.at, p)
		}
	}
	r.used[op] = true
	r.sent[l.came.Serial] = op
	r.add(l.at, Event{Kind: Sends, Op: op, Machine: l.came.SystemID})
}

func (r *runReader) records(at time.Time, p record.Pending) {
	r.used[string(p.Op)] = false
	r.add(at, Event{Kind: Records, Op: string(p.Op), From: p.At.Add(r.settle), Until: p.At.Add(permitLasts)})
}

// version says what a version of the object changes.
func (r *runReader) version(v *logged, at time.Time) error {
	m := v.version
	data, err := record.OfMachine(m)
	if err != nil {
		return fmt.Errorf("reading a record: %w", err)
	}
	before, was := r.now, r.data
	r.now, r.data, r.byThem = m, data, r.people[m.ResourceVersion] || (v.gone && r.freed)
	defer func() { r.byThem = false }()
	if before == nil {
		r.begins(at, m, &data)
		return nil
	}
	if r.finished {
		return nil
	}
	if before.DeletionTimestamp.IsZero() && !m.DeletionTimestamp.IsZero() {
		r.add(at, Event{Kind: Deletes})
	}
	if m.Spec.SystemID != before.Spec.SystemID && m.Spec.SystemID != "" {
		r.add(at, Event{Kind: Stores, Machine: m.Spec.SystemID})
	}
	for _, id := range was.Unused {
		if !slices.Contains(data.Unused, id) {
			r.add(at, Event{Kind: IsRid, Machine: id})
		}
	}
	for _, id := range data.Unused {
		if !slices.Contains(was.Unused, id) {
			r.add(at, Event{Kind: SetsAside, Machine: id})
		}
	}
	if v.gone {
		data.Pending = was.Pending
	}
	r.pending(at, was.Pending, data.Pending)
	if releasing(&was) != releasing(&data) {
		r.add(at, Event{Kind: Releasing, On: releasing(&data)})
	}
	had := controllerutil.ContainsFinalizer(before, infrav1.MachineFinalizer)
	if had && (v.gone || !controllerutil.ContainsFinalizer(m, infrav1.MachineFinalizer)) {
		r.finished = true
		r.add(at, Event{Kind: Finishes})
	}
	return nil
}

// pending says which calls are recorded, and which are not any more.
func (r *runReader) pending(at time.Time, before, now []record.Pending) {
	named := func(list []record.Pending, op record.Op) *record.Pending {
		if i := slices.IndexFunc(list, func(p record.Pending) bool { return p.Op == op }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for _, p := range before {
		later := named(now, p.Op)
		if later == nil || later.At.Before(&p.At) {
			r.add(at, Event{Kind: Forgets, Op: string(p.Op), Restored: later != nil})
		}
	}
	for _, p := range now {
		if earlier := named(before, p.Op); earlier == nil || earlier.At.Before(&p.At) {
			r.records(at, p)
		}
	}
}

func releasing(data *record.MachineData) bool { return data.In("releasing", "disk-erasing", "undoing") }

// begins is the first version. What is recorded there, others have recorded: its settle time may be over.
func (r *runReader) begins(at time.Time, m *infrav1.MaasMachine, data *record.MachineData) {
	s := &State{Deleted: !m.DeletionTimestamp.IsZero(), SystemID: m.Spec.SystemID, Unused: map[string]bool{},
		Releasing: releasing(data), Pending: map[string]Entry{}, Machines: map[string]Look{}}
	for _, id := range data.Unused {
		s.Unused[id] = true
	}
	for _, p := range data.Pending {
		s.Pending[string(p.Op)] = Entry{From: p.At.Add(r.settle)}
	}
	for id, look := range r.machines {
		if r.relevant[id] {
			s.Machines[id] = look
		}
	}
	r.add(at, Event{Kind: Begins, Begin: s})
}

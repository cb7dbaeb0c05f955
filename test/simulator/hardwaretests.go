// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Results of scripts, with MAAS's numbers.
const (
	scriptNone     = -1
	scriptPending  = 0
	scriptRunning  = 1
	scriptPassed   = 2
	scriptFailed   = 3
	scriptTimedOut = 4
	scriptAborted  = 5
	scriptDegraded = 6
	scriptSkipped  = 9
)

var scriptNames = map[int]string{
	scriptNone: "Unknown", scriptPending: "Pending", scriptRunning: "Running", scriptPassed: "Passed",
	scriptFailed: "Failed", scriptTimedOut: "Timed out", scriptAborted: "Aborted", scriptDegraded: "Degraded",
	scriptSkipped: "Skipped",
}

// scriptSet are the results of tests that were begun together.
type scriptSet struct {
	id       int
	results  []*scriptResult
	wasOn    bool // the machine was on before
	lastPing time.Time
}

// scriptResult is the result of a script on a machine or on one of its devices.
type scriptResult struct {
	id             int
	script         *script
	parameters     map[string]string // all but the device
	disk           *disk
	nic            *iface
	unknownDevice  string // the name of the parameter for a device that is not known yet
	status         int
	exit           *int
	started, ended *time.Time
	output         string
	suppressed     bool
	created        time.Time
	updated        time.Time
}

func (r *scriptResult) isUnderWay() bool {
	return r.status == scriptPending || r.status == scriptRunning
}

// isSame reports whether another result is of the same script, on the same device.
func (r *scriptResult) isSame(other *scriptResult) bool {
	return r.script == other.script && r.disk == other.disk && r.nic == other.nic
}

// wanted is what is to be tested: scripts, each with its parameters.
type wantedTests struct {
	scripts    []*script
	parameters map[*script]map[string]string
}

// wantedOf are scripts by their names and tags, with parameters by theirs.
func (s *Simulator) wantedOf(m *machine, names []string, parameters map[*script]map[string]string) wantedTests {
	w := wantedTests{parameters: parameters}
	for _, sc := range s.db.scripts {
		if slices.ContainsFunc(names, sc.isCalled) && sc.fits(m) {
			w.scripts = append(w.scripts, sc)
		}
	}
	return w
}

// commissioningTag is the tag of scripts that run if no others are asked for.
const commissioningTag = "commissioning"

// beginTests makes the results of tests that are to be run, and ends those of earlier ones. Errors are those of the
// scripts' parameters, by the names of the fields.
func (s *Simulator) beginTests(m *machine, w wantedTests) (*scriptSet, error) {
	set := &scriptSet{id: s.db.next("scriptset"), wasOn: m.powerState == "on"}
	for _, sc := range w.scripts {
		if err := s.addResults(m, set, sc, w.parameters[sc]); err != nil {
			return nil, err
		}
	}
	s.endTests(m, scriptAborted)
	m.tests, m.testSet = append(m.tests, set), set
	s.dropOldResults(m)
	return set, nil
}

// addResults adds the results of a script: one for each of the devices that it is about.
func (s *Simulator) addResults(m *machine, set *scriptSet, sc *script, given map[string]string) error {
	errs, values := formErrors{}, map[string]string{}
	one := scriptResult{script: sc, parameters: values, status: scriptPending}
	devices := []scriptResult{one}
	for _, p := range sc.parameters {
		value := orDefault(given[p.name], p.value)
		switch {
		case p.kind == "storage":
			devices = one.onDisks(m, p, orDefault(value, "all"))
		case p.kind == "interface":
			devices = one.onInterfaces(m, p, orDefault(value, "all"))
		case value == "" && p.required:
			errs.add(p.name, "Field is required")
		case p.kind == "url" && strings.ContainsAny(value, " <>\""):
			errs.add(p.name, "Invalid URL")
		case value != "":
			values[p.name] = value
		}
	}
	for name := range given {
		if !sc.has(name) {
			errs.add("input", "Unknown parameter '%s' for %s", name, sc.name)
		}
	}
	if err := errs.err(); err != nil {
		return err
	}
	now := s.time.clock.Now().UTC()
	for _, r := range devices {
		r.id, r.created, r.updated = s.db.next("scriptresult"), now, now
		set.results = append(set.results, &r)
	}
	return nil
}

// onDisks are results for the disks that a value means; it is a placeholder while MAAS knows none.
func (r scriptResult) onDisks(m *machine, p scriptParameter, value string) (all []scriptResult) {
	for _, d := range m.disks {
		if value == "all" || slices.Contains(diskNames(d), value) {
			r.disk = d
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		r.disk, r.unknownDevice = nil, p.name
		all = append(all, r)
	}
	return all
}

// diskNames are what a parameter may call a disk (_get_storage_choices in maasserver/forms/ephemeral.py).
func diskNames(d *disk) []string {
	return append([]string{fmt.Sprint(d.id), d.name, d.model, d.serial, d.model + ":" + d.serial}, d.tags...)
}

// onInterfaces is onDisks for the interfaces that have a link.
func (r scriptResult) onInterfaces(m *machine, p scriptParameter, value string) (all []scriptResult) {
	for _, nic := range m.ifaces {
		if m.isConfigured(nic) && (value == "all" || slices.Contains(interfaceNames(nic), value)) {
			r.nic = nic
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		r.nic, r.unknownDevice = nil, p.name
		all = append(all, r)
	}
	return all
}

// isConfigured reports whether an interface has a network, and is a part of no other.
func (m *machine) isConfigured(nic *iface) bool {
	isPart := slices.ContainsFunc(m.ifaces, func(other *iface) bool { return slices.Contains(other.ports, nic.name) })
	hasNetwork := slices.ContainsFunc(nic.links, func(a *address) bool { return a.mode() != "link_up" })
	return nic.enabled && hasNetwork && !isPart
}

func interfaceNames(nic *iface) []string {
	return append([]string{fmt.Sprint(nic.id), nic.name, nic.mac}, nic.tags...)
}

// regenerate makes the results for devices anew, when commissioning has found them (ScriptSet.regenerate).
func (s *Simulator) regenerate(m *machine) {
	set := m.testSet
	if set == nil {
		return
	}
	again := map[*script]map[string]string{}
	var order []*script
	set.results = slices.DeleteFunc(set.results, func(r *scriptResult) bool {
		if r.status != scriptPending || !slices.ContainsFunc(r.script.parameters, scriptParameter.isDevice) {
			return false
		}
		if again[r.script] == nil {
			order = append(order, r.script)
		}
		again[r.script] = r.parameters
		return true
	})
	for _, sc := range order {
		_ = s.addResults(m, set, sc, again[sc]) // They were right before.
	}
}

// endTests gives what is under way a result.
func (s *Simulator) endTests(m *machine, status int) {
	for _, set := range m.tests {
		for _, r := range set.results {
			if r.isUnderWay() {
				r.status, r.updated = status, s.time.clock.Now().UTC()
			}
		}
	}
}

// dropOldResults leaves the last results of each script on each device (_clean_old in maasserver/models/scriptset.py).
func (s *Simulator) dropOldResults(m *machine) {
	most, _ := s.db.config["max_node_testing_results"].(int)
	for _, fresh := range m.testSet.results {
		kept := 0
		for _, set := range slices.Backward(m.tests) {
			set.results = slices.DeleteFunc(set.results, func(r *scriptResult) bool {
				if !r.isSame(fresh) {
					return false
				}
				kept++
				return kept > most
			})
		}
	}
	m.tests = slices.DeleteFunc(m.tests, func(set *scriptSet) bool { return len(set.results) == 0 })
}

// latestResults are the last results of each script on each device that MAAS counts: an aborted one hides what was before
// (get_cached_script_results in maasserver/api/nodes.py).
func (m *machine) latestResults() (latest []*scriptResult) {
	for _, set := range m.tests {
		for _, r := range set.results {
			latest = slices.DeleteFunc(latest, r.isSame)
			latest = append(latest, r)
		}
	}
	return slices.DeleteFunc(latest, func(r *scriptResult) bool { return r.status == scriptAborted })
}

// overall is what results are together (get_overall_status in maasserver/models/scriptset.py).
func overall(results []*scriptResult) int {
	if len(results) == 0 {
		return scriptNone
	}
	for _, status := range []int{scriptRunning, scriptPending, scriptAborted, scriptFailed, scriptTimedOut, scriptDegraded} {
		if slices.ContainsFunc(results, func(r *scriptResult) bool { return r.status == status && !r.suppressed }) {
			if status == scriptTimedOut {
				return scriptFailed
			}
			return status
		}
	}
	return scriptPassed
}

// passedTests are those that a machine passed when it was commissioned.
func (s *Simulator) passedTests(m *machine) error {
	set, err := s.beginTests(m, s.wantedOf(m, []string{commissioningTag}, nil))
	if err != nil {
		return err
	}
	for _, r := range set.results {
		s.finishTest(m, r)
		r.started = r.ended
	}
	return nil
}

// TestOutcome is how a testing script ends on a machine.
type TestOutcome struct {
	// Result is passed, failed, degraded or skipped. hangs: it runs until its timeout, or for ever if it has none. dies: the
	// machine is not heard of any more. "" is passed.
	Result string `json:"result"`
	// Device is the name of the disk or interface on which it is so; "": on all.
	Device string `json:"device"`
	// Output is what the script writes.
	Output string `json:"output"`
}

// Results of TestOutcome that are no results in MAAS.
const (
	testHangs = "hangs"
	testDies  = "dies"
)

var outcomes = map[string]int{
	"": scriptPassed, "passed": scriptPassed, "failed": scriptFailed, "degraded": scriptDegraded, "skipped": scriptSkipped,
	testHangs: scriptTimedOut, testDies: scriptTimedOut,
}

// SetTestOutcome says how a testing script ends on a machine, from now on. A machine that dies without a script does not
// boot to be tested.
func (s *Simulator) SetTestOutcome(systemID, scriptName string, o TestOutcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return controlMissing("machine", systemID)
	}
	return s.setOutcome(m, scriptName, o)
}

func (s *Simulator) setOutcome(m *machine, scriptName string, o TestOutcome) error {
	if boots := scriptName == "" && (o.Result == "" || o.Result == testDies); !boots && s.scriptNamed(scriptName) == nil {
		return controlMissing("script", scriptName)
	}
	if _, known := outcomes[o.Result]; !known {
		return controlRefusal("result %q: want passed, failed, degraded, skipped, hangs or dies", o.Result)
	}
	m.outcomes[scriptName] = o
	return nil
}

// AgeTests makes the results of a machine's tests older.
func (s *Simulator) AgeTests(systemID string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return
	}
	for _, set := range m.tests {
		for _, r := range set.results {
			for _, at := range []**time.Time{&r.started, &r.ended} {
				if *at != nil {
					*at = new((*at).Add(-by))
				}
			}
		}
	}
}

// runTests runs the machine's pending tests once it is on, script after script: an agent on the machine sorts them by
// what they test. then gets how many have failed.
func (s *Simulator) runTests(m *machine, then func(failed int)) {
	set := m.testSet
	order := slices.Clone(set.results)
	slices.SortStableFunc(order, func(a, b *scriptResult) int {
		last := func(sc *script) int { return cmp.Compare(sc.hardware, hardwareNode) } // Those of the node come last.
		return cmp.Or(cmp.Compare(a.script.parallel, b.script.parallel), -cmp.Compare(last(a.script), last(b.script)),
			cmp.Compare(a.script.hardware, b.script.hardware), strings.Compare(a.script.name, b.script.name))
	})
	s.runNext(m, order, then)
}

// runNext runs the first script, on all its devices, and then the others.
func (s *Simulator) runNext(m *machine, order []*scriptResult, then func(failed int)) {
	if len(order) == 0 {
		failed := slices.DeleteFunc(slices.Clone(m.testSet.results), func(r *scriptResult) bool {
			return r.status != scriptFailed && r.status != scriptTimedOut
		})
		then(len(failed))
		return
	}
	if !m.running || m.outcomes[""].Result == testDies {
		s.loseTests(m, order)
		return
	}
	sc, now := order[0].script, s.time.clock.Now().UTC()
	count := slices.IndexFunc(order, func(r *scriptResult) bool { return r.script != sc })
	if count < 0 {
		count = len(order)
	}
	for _, r := range order[:count] {
		r.status, r.started, r.updated = scriptRunning, &now, now
	}
	m.testSet.lastPing = now
	took := s.timings.test()
	switch o := m.outcomes[sc.name]; {
	case o.Result == testDies:
		s.loseTests(m, order)
		return
	case o.Result == testHangs && sc.timeout == 0:
		return // It goes on, and the machine goes on to say that it lives.
	case o.Result == testHangs:
		took = sc.timeout
	}
	s.later(m, took, func() {
		if !m.running {
			s.loseTests(m, order)
			return
		}
		for _, r := range order[:count] {
			s.finishTest(m, r)
		}
		s.runNext(m, order[count:], then)
	})
}

// finishTest gives a script that ran its result.
func (s *Simulator) finishTest(m *machine, r *scriptResult) {
	o, exit := m.outcomes[r.script.name], r.script.exit
	if o.Device != "" && o.Device != r.device() {
		o = TestOutcome{}
	}
	if o.Result == "" && exit != 0 {
		o.Result = "failed"
	}
	now := s.time.clock.Now().UTC()
	r.status, r.output, r.ended, r.updated = outcomes[o.Result], o.Output, &now, now
	if r.output == "" {
		r.output = r.script.name + " " + strings.ToLower(scriptNames[r.status]) + "\n"
	}
	if r.status == scriptFailed {
		exit = cmp.Or(exit, 1)
	}
	if r.status != scriptTimedOut {
		r.exit = &exit
	}
}

// device is the name of the device that a result is about, or "".
func (r *scriptResult) device() string {
	switch {
	case r.disk != nil:
		return r.disk.name
	case r.nic != nil:
		return r.nic.name
	}
	return ""
}

// loseTests is how MAAS ends tests of a machine that it does not hear of: one that has never begun did not boot, and one
// that has is switched off (maasserver/status_monitor.py).
func (s *Simulator) loseTests(m *machine, left []*scriptResult) {
	s.later(m, nodeTimeout, func() {
		if left[0].status == scriptPending && len(left) == len(m.testSet.results) {
			s.endTests(m, scriptAborted)
			s.fail(m, "Node operation 'Testing' timed out after 30 minutes.")
			return
		}
		s.endTests(m, scriptTimedOut)
		s.fail(m, "Node has not been heard from for the last 30 minutes")
		s.shutDown(m)
	})
}

// Statuses after tests that passed, by that before them; others are as before (_process_testing in metadataserver/api.py).
var afterTests = map[status]status{
	statusNew: statusReady, statusCommissioning: statusReady, statusFailedDeployment: statusReady, statusMissing: statusReady,
	statusRetired: statusReady, statusBroken: statusReady, statusFailedReleasing: statusReady,
	statusFailedDiskErasing: statusReady, statusFailedEnteringRescue: statusReady, statusFailedExitingRescue: statusReady,
	statusFailedTesting: statusReady, statusFailedCommissioning: statusNew,
}

// concludeTests ends tests that ran to their end. The machine switches itself off afterwards, or restarts if it was on.
func (s *Simulator) concludeTests(m *machine, failed int) {
	wasOn := m.testSet.wasOn
	if text := s.takeFailure(m, failTest); text != "" {
		last := m.testSet.results[len(m.testSet.results)-1]
		last.status, last.exit, last.output = scriptFailed, new(1), text+"\n"
		s.fail(m, text)
	} else if failed > 0 {
		s.setStatus(m, statusFailedTesting)
		s.addEvent(m, "Failed testing", fmt.Sprintf("%d test scripts failed to run", failed))
	} else {
		next, known := afterTests[m.previous]
		if !known {
			next = m.previous
		}
		s.setStatus(m, next)
	}
	if !wasOn {
		s.shutDown(m)
	}
}

// shutDown is a machine that switches itself off, whatever becomes of it in MAAS meanwhile, unless it is switched on again.
func (s *Simulator) shutDown(m *machine) {
	boots := m.boots
	s.in(s.timings.powerOff(), func() {
		hv, name := s.behind(m)
		off := func(err error) {
			if err == nil && !m.gone {
				s.switched(m, false, false)
			}
		}
		switch {
		case m.gone || m.boots != boots:
		case hv == nil:
			off(nil)
		default:
			s.onHost(hv, func() error { return hv.SetPower(name, false) }, off)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// testable are the statuses in which MAAS offers tests (Test in maasserver/node_action.py).
var testable = []status{
	statusFailedCommissioning, statusNew, statusReady, statusReserved, statusAllocated, statusFailedDeployment,
	statusDeployed, statusMissing, statusRetired, statusBroken, statusRescueMode, statusFailedReleasing,
	statusFailedDiskErasing, statusFailedEnteringRescue, statusFailedExitingRescue, statusFailedTesting,
}

// testMachine starts tests (test in maasserver/api/nodes.py, TestForm in maasserver/forms/ephemeral.py, start_testing in
// maasserver/models/node.py).
func (rq *request) testMachine() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	names, errs := rq.scriptNames(), formErrors{}
	rq.checkScripts(names, errs)
	values := rq.testParameters(m, errs)
	if !slices.Contains(testable, m.status) || len(m.ifaces) == 0 {
		errs.add("__all__", "Test is not available because of the current state of the node.")
	}
	isDestructive := func(sc *script) bool { return sc.destructive && slices.ContainsFunc(names, sc.isCalled) }
	if m.status == statusDeployed && slices.ContainsFunc(rq.db.scripts, isDestructive) {
		errs.add("testing_scripts", "Destructive tests may only be run on undeployed machines.")
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names, values = []string{commissioningTag}, nil // The form finds no scripts for parameters.
	}
	w := rq.wantedOf(m, names, nil)
	w.parameters = parametersOf(w.scripts, values)
	if err := rq.checkTests(m, w); err != nil {
		return nil, err
	}
	return rq.startTests(m, w)
}

// scriptNames are the names and tags of testing_scripts: of several values the last one counts, which has commas.
func (rq *request) scriptNames() []string {
	if rq.data.get("testing_scripts") == "" {
		return nil
	}
	return strings.Split(rq.data.get("testing_scripts"), ",")
}

// checkScripts refuses the first name that no script has, nor a tag of one.
func (rq *request) checkScripts(names []string, errs formErrors) {
	for _, name := range names {
		isKnown := func(sc *script) bool { return sc.isCalled(name) }
		if !slices.ContainsFunc(rq.db.scripts, isKnown) {
			errs.add("testing_scripts", "Select a valid choice. %s is not one of the available choices.", name)
			return
		}
	}
}

// testParameters reads the parameters of all scripts, by their names and by those with the script's before.
func (rq *request) testParameters(m *machine, errs formErrors) map[string]string {
	values := map[string]string{}
	for _, sc := range rq.db.scripts {
		for _, p := range sc.parameters {
			for _, field := range []string{sc.name + "_" + p.name, p.name} {
				value := rq.data.get(field)
				if _, done := values[field]; done || value == "" || len(errs[field]) > 0 {
					continue
				}
				if values[field] = value; !p.takes(m, value) {
					errs.add(field, "%s", p.complaint(value))
				}
			}
		}
	}
	return values
}

// takes reports whether the form takes a value.
func (p scriptParameter) takes(m *machine, value string) bool {
	switch p.kind {
	case "storage":
		return value == "all" || slices.ContainsFunc(m.disks, func(d *disk) bool { return slices.Contains(diskNames(d), value) })
	case "interface":
		return value == "all" || slices.ContainsFunc(m.ifaces, func(i *iface) bool { return slices.Contains(interfaceNames(i), value) })
	case "choice":
		return slices.Contains(p.choices, value)
	case "runtime":
		_, err := strconv.Atoi(value)
		return err == nil
	}
	return true
}

func (p scriptParameter) complaint(value string) string {
	if p.kind == "runtime" {
		return "Enter a valid duration."
	}
	return "Select a valid choice. " + value + " is not one of the available choices."
}

// parametersOf gives each script its parameters (get_script_param_dict in maasserver/forms/ephemeral.py): one whose name has
// that of a script in it is for that script alone, and others for all that have it.
func parametersOf(scripts []*script, values map[string]string) map[*script]map[string]string {
	parameters := map[*script]map[string]string{}
	give := func(sc *script, name, value string) {
		if parameters[sc] == nil {
			parameters[sc] = map[string]string{}
		}
		parameters[sc][name] = value
	}
	for field, value := range values {
		isForOne := false
		for _, sc := range scripts {
			if strings.Contains(field, sc.name) {
				isForOne = true
				give(sc, strings.Trim(strings.ReplaceAll(field, sc.name, ""), "_-"), value)
			}
		}
		for _, sc := range scripts {
			if sc.has(field) && !isForOne && values[sc.name+"_"+field] == "" {
				give(sc, field, value)
			}
		}
	}
	return parameters
}

// checkTests refuses what can't be tested now.
func (rq *request) checkTests(m *machine, w wantedTests) error {
	isDestructive := func(sc *script) bool { return sc.destructive }
	needsInterface := func(sc *script) bool {
		return sc.has(interfaceParameter.name) && !slices.ContainsFunc(m.ifaces, m.isConfigured)
	}
	switch {
	case m.powerType == "":
		return textError(http.StatusInternalServerError,
			"Unconfigured power type. Please configure the power type and try again.")
	case m.status == statusNew && m.commissionResult == 0:
		return badRequest("Unable to start machine testing; this node has never been commissioned. " +
			"Please use the 'Commission' action to commission & test this machine.")
	case len(w.scripts) == 0:
		return badRequest("No testing scripts found!")
	case slices.ContainsFunc(w.scripts, needsInterface):
		return badRequest("An interface must be configured to run network testing!")
	case m.previous == statusDeployed && slices.ContainsFunc(w.scripts, isDestructive):
		return badRequest("Unable to run destructive test while deployed!")
	}
	return rq.checkEphemeral(m)
}

// startTests boots the machine and runs tests on it. From 3.5 on the call waits for the power, and what can't be switched is
// as before; before, it has failed its tests.
func (rq *request) startTests(m *machine, w wantedTests) (any, error) {
	if _, err := rq.beginTests(m, w); err != nil {
		return nil, err
	}
	before, waits := m.status, rq.version.AtLeast(3, 5, 0)
	rq.setStatus(m, statusTesting)
	if m.owner == nil {
		m.owner = rq.user
	}
	if slices.ContainsFunc(w.scripts, func(sc *script) bool { return sc.networks }) {
		if err := rq.claimAutoAddresses(m); err != nil {
			rq.takeTestsBack(m, before)
			return nil, err
		}
	}
	text := rq.noDriver(m)
	if text == "" && waits {
		text = rq.takeFailure(m, failPower)
	}
	if text != "" {
		rq.takeTestsBack(m, before)
		return nil, textError(http.StatusInternalServerError, "%s", text)
	}
	rq.cyclePower(m, func(err error) {
		switch {
		case err != nil && waits:
			rq.takeTestsBack(m, before)
		case err != nil:
			rq.fail(m, "Power cycle for the node failed: "+err.Error())
		default:
			rq.runTests(m, func(failed int) { rq.concludeTests(m, failed) })
		}
	})
	return rq.renderMachine(m), nil
}

// takeTestsBack ends tests that could not begin (_start_bmc_unavailable in maasserver/models/node.py).
func (s *Simulator) takeTestsBack(m *machine, before status) {
	s.endTests(m, scriptAborted)
	s.setStatus(m, before)
	s.addEvent(m, "Failed to query node's BMC", "Unable to power control the node. Please check power credentials.")
	if m.status != statusDeployed {
		s.releaseAutoAddresses(m)
	}
}

// overrideFailedTesting makes a machine usable that has failed its tests. It is released by that only as far as a machine
// that is Ready has no owner.
func (rq *request) overrideFailedTesting() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if m.status != statusFailedTesting {
		return nil, conflict("Unable to override node status. Node is not in 'Failed testing' status.")
	}
	next := statusReady
	if m.osystem != "" {
		next = statusDeployed
	}
	rq.setStatus(m, next)
	m.errorDescription = ""
	return rq.renderMachine(m), nil
}

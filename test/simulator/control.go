// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// controlError is a refusal of the control endpoint.
type controlError struct {
	status int
	text   string
}

func (e *controlError) Error() string { return e.text }

func controlRefusal(format string, args ...any) error {
	return &controlError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func controlMissing(what, name string) error {
	return &controlError{http.StatusNotFound, fmt.Sprintf("there is no %s %q", what, name)}
}

// controlHandler serves /control/: JSON in and out, no credentials. GET /control/ lists what there is.
//
//	GET    /control/state                     everything MAAS keeps, and what is on the VM hosts
//	GET    /control/machines                  all machines
//	GET    /control/machines/{id}             one, by system id or hostname
//	POST   /control/machines/{id}/power       {"power": "on"|"off", "unnoticed": bool}
//	POST   /control/machines/{id}/fail        {"operation": "deploy"|..., "message": text, "now": bool}
//	POST   /control/machines/{id}/test        {"script", "result", "device", "output"}: how a testing script ends on it
//	POST   /control/machines/{id}/sync        {"networks", "disks"}: the deployed machine reports its hardware
//	POST   /control/machines/{id}/status      {"status": short name}: set it, whatever MAAS's table says
//	POST   /control/fail-next                 {"operation", "message"}: the next machine that does it fails
//	GET    /control/vm-hosts                  the hosts with the VMs that really are on them
//	POST   /control/vm-hosts/{name}           {"unreachable": bool, "losing": bool}: break or mend it
//	DELETE /control/vm-hosts/{name}/vms/{vm}  delete a VM behind MAAS's back
//	POST   /control/vm-hosts/{name}/vms       {"name", "project", "cores", "memory", "disks"}: make one behind MAAS's back
//	GET    /control/calls, DELETE             the calls so far; forget them
//	GET    /control/faults, POST, DELETE      the faults; add one; end all
//	DELETE /control/faults/{id}               end one
//	GET    /control/time, PUT                 {"scale": number}
//	PUT    /control/version                   {"version": "4.0"}: upgrade MAAS
func (s *Simulator) controlHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, fn func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.control(w, r, fn) })
	}
	handle("GET /control/state", func(*http.Request) (any, error) { return json.RawMessage(s.State()), nil })
	handle("GET /control/machines", func(*http.Request) (any, error) { return s.Machines(), nil })
	handle("GET /control/machines/{id}", s.controlMachine)
	handle("POST /control/machines/{id}/power", s.controlPower)
	handle("POST /control/machines/{id}/fail", s.controlFail)
	handle("POST /control/machines/{id}/status", s.controlStatus)
	handle("POST /control/machines/{id}/test", s.controlTest)
	handle("POST /control/fail-next", s.controlFailNext)
	handle("GET /control/vm-hosts", func(*http.Request) (any, error) { return s.VMHosts(), nil })
	handle("POST /control/vm-hosts/{name}", s.controlBreakHost)
	handle("POST /control/vm-hosts/{name}/vms", s.controlMakeVM)
	handle("DELETE /control/vm-hosts/{name}/vms/{vm}", s.controlDeleteVM)
	handle("GET /control/calls", func(*http.Request) (any, error) { return s.Calls(), nil })
	handle("DELETE /control/calls", func(*http.Request) (any, error) { s.ResetCalls(); return nil, nil })
	handle("GET /control/faults", func(*http.Request) (any, error) { return s.Faults(), nil })
	handle("POST /control/faults", s.controlAddFault)
	handle("DELETE /control/faults", func(*http.Request) (any, error) { s.ClearFaults(); return nil, nil })
	handle("DELETE /control/faults/{id}", s.controlRemoveFault)
	handle("GET /control/time", func(*http.Request) (any, error) { return s.controlTime(), nil })
	handle("PUT /control/time", s.controlSetTime)
	handle("PUT /control/version", s.controlUpgrade)
	return mux
}

// control runs one control call. Without a result it returns 204.
func (s *Simulator) control(w http.ResponseWriter, r *http.Request, fn func(*http.Request) (any, error)) {
	value, err := fn(r)
	status := http.StatusOK
	var refusal *controlError
	switch {
	case errors.As(err, &refusal):
		status, value = refusal.status, object{"error": refusal.text}
	case err != nil:
		status, value = http.StatusBadRequest, object{"error": err.Error()}
	case value == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(status)
	if _, err := w.Write(append(raw, '\n')); err != nil {
		s.log.V(1).Info("The control client went away", "reason", err.Error())
	}
}

// readControl reads a JSON object strictly: unknown keys are refused.
func readControl(r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return controlRefusal("reading the request: %v", err)
	}
	return nil
}

// withMachine runs fn on the machine of the path, found by system id or hostname, and returns its snapshot afterwards.
func (s *Simulator) withMachine(r *http.Request, fn func(*machine) error) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("id")
	m := s.machineByID(name)
	if m == nil {
		m = s.machineByHostname(name)
	}
	if m == nil {
		return nil, controlMissing("machine", name)
	}
	if err := fn(m); err != nil {
		return nil, err
	}
	return s.snapshot(m), nil
}

func (s *Simulator) controlMachine(r *http.Request) (any, error) {
	return s.withMachine(r, func(*machine) error { return nil })
}

func (s *Simulator) controlPower(r *http.Request) (any, error) {
	var in struct {
		Power     string `json:"power"`
		Unnoticed bool   `json:"unnoticed"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	if in.Power != "on" && in.Power != "off" {
		return nil, controlRefusal("power is %q: want on or off", in.Power)
	}
	on := in.Power == "on"
	var hv hypervisor
	name := ""
	if _, err := s.withMachine(r, func(m *machine) error { hv, name = s.behind(m); return nil }); err != nil {
		return nil, err
	}
	if hv != nil {
		if err := hv.SetPower(name, on); err != nil {
			return nil, controlRefusal("%v", err)
		}
	}
	return s.withMachine(r, func(m *machine) error { s.switched(m, on, in.Unnoticed); return nil })
}

// switched records that a person at the rack has switched a machine; MAAS notices at once, or at its next poll.
func (s *Simulator) switched(m *machine, on, unnoticed bool) {
	m.running = on
	if !unnoticed {
		s.setPowerState(m, onOff(on))
	}
}

func (s *Simulator) controlTest(r *http.Request) (any, error) {
	var in struct {
		Script string `json:"script"`
		TestOutcome
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	return s.withMachine(r, func(m *machine) error { return s.setOutcome(m, in.Script, in.TestOutcome) })
}

// failure describes how an operation is made to fail.
type failure struct {
	Operation string `json:"operation"`
	Message   string `json:"message"`
	// Now fails the machine's present operation instead of the next one.
	Now bool `json:"now"`
}

func readFailure(r *http.Request) (failure, error) {
	f := failure{Operation: failDeploy, Message: "failed by the tester"}
	if err := readControl(r, &f); err != nil {
		return f, err
	}
	if !slices.Contains(failable, f.Operation) {
		return f, controlRefusal("operation %q cannot fail: want one of %v", f.Operation, failable)
	}
	return f, nil
}

func (s *Simulator) controlFail(r *http.Request) (any, error) {
	f, err := readFailure(r)
	if err != nil {
		return nil, err
	}
	return s.withMachine(r, func(m *machine) error {
		if !f.Now {
			m.failing[f.Operation] = f.Message
			return nil
		}
		if statuses[m.status].failed == noFailure {
			return controlRefusal("machine %s is %s: nothing can fail now", m.systemID, m.status)
		}
		s.fail(m, f.Message)
		return nil
	})
}

func (s *Simulator) controlFailNext(r *http.Request) (any, error) {
	f, err := readFailure(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failNext[f.Operation] = f.Message
	return nil, nil
}

func (s *Simulator) controlStatus(r *http.Request) (any, error) {
	var in struct {
		Status string `json:"status"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	next, ok := statusByShortName(in.Status)
	if !ok {
		return nil, controlRefusal("status %q is none of MAAS's", in.Status)
	}
	return s.withMachine(r, func(m *machine) error { s.setStatus(m, next); return nil })
}

func (s *Simulator) controlAddFault(r *http.Request) (any, error) {
	var f Fault
	if err := readControl(r, &f); err != nil {
		return nil, err
	}
	id, err := s.AddFault(f)
	if err != nil {
		return nil, err
	}
	return object{"id": id}, nil
}

func (s *Simulator) controlRemoveFault(r *http.Request) (any, error) {
	if !s.RemoveFault(r.PathValue("id")) {
		return nil, controlMissing("fault", r.PathValue("id"))
	}
	return nil, nil
}

func (s *Simulator) controlUpgrade(r *http.Request) (any, error) {
	var in struct {
		Version string `json:"version"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	return nil, s.Upgrade(in.Version)
}

func (s *Simulator) controlTime() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return object{"scale": s.time.scale, "passed": Duration(s.time.now())}
}

func (s *Simulator) controlSetTime(r *http.Request) (any, error) {
	var in struct {
		Scale float64 `json:"scale"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	if err := s.SetTimeScale(in.Scale); err != nil {
		return nil, err
	}
	return s.controlTime(), nil
}

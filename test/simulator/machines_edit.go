// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// annotationKey is the pattern of keys of annotations; MAAS fails at others.
var annotationKey = regexp.MustCompile(`^[\w.-]+$`)

// setWorkloadAnnotations sets the owner's keys; an empty value removes its key. Not even administrators may do it for
// another user.
func (rq *request) setWorkloadAnnotations() (any, error) {
	m, err := rq.machineFor(mayEdit)
	if err != nil {
		return nil, err
	}
	if m.owner != rq.user {
		return nil, conflict("Cannot set workload annotation: it hasn't been acquired.")
	}
	if err := rq.annotate(m); err != nil {
		return nil, err
	}
	return rq.renderMachine(m), nil
}

// annotate sets the annotations in the form.
func (rq *request) annotate(m *machine) error {
	keys := slices.DeleteFunc(slices.Clone(rq.data.order), func(key string) bool { return key == "op" })
	for _, key := range keys {
		if rq.data.get(key) != "" && !annotationKey.MatchString(key) {
			return textError(http.StatusInternalServerError, "Invalid character in key name")
		}
	}
	for _, key := range keys {
		if value := rq.data.get(key); value == "" {
			delete(m.ownerData, key)
		} else {
			m.ownerData[key] = value
		}
	}
	return nil
}

var hostLabel = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// checkHostname returns MAAS's complaint about a hostname, which may have a domain (validate_hostname in
// maasserver/utils/dns.py).
func checkHostname(name string) string {
	if len(name) > 255 {
		return "Hostname is too long.  Maximum allowed is 255 characters."
	}
	if host := firstPart(name, '.'); strings.Contains(host, "_") {
		return "Host label cannot contain underscore: " + pythonText(host) + "."
	}
	for label := range strings.SplitSeq(name, ".") {
		if complaint := checkLabel(label); complaint != "" {
			return complaint
		}
	}
	return ""
}

// checkLabel returns the complaint about a part of a hostname between dots.
func checkLabel(label string) string {
	switch {
	case label == "":
		return "DNS name contains an empty label."
	case len(label) > 63:
		return "Label is too long: " + pythonText(label) + ".  Maximum allowed is 63 characters."
	case strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-"):
		return "Label cannot start or end with hyphen: " + pythonText(label) + "."
	case !hostLabel.MatchString(label):
		return "Label contains disallowed characters: " + pythonText(label) + "."
	}
	return ""
}

func (rq *request) updateMachine() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	errs := formErrors{}
	apply := rq.planEdit(m, rq.data, errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	apply()
	return rq.renderMachine(m), nil
}

// planEdit checks the fields in the form, and returns what changes them if there are no complaints.
func (rq *request) planEdit(m *machine, f form, errs formErrors) (apply func()) {
	changes := []func(){}
	then := func(change func()) { changes = append(changes, change) }
	if f.get("hostname") != "" {
		rq.editHostname(m, f.get("hostname"), errs, then)
	}
	if name := f.get("domain"); name != "" {
		d := rq.domainByName(name)
		if id, err := strconv.Atoi(name); d == nil && err == nil {
			d = rq.domainByID(id)
		}
		if d == nil {
			errs.add("domain", "Unable to find domain %s.", name)
		}
		then(func() { m.domain = d })
	}
	if name := f.get("zone"); name != "" {
		z := rq.zoneByName(name)
		if z == nil {
			errs.add("zone", "Select a valid choice. That choice is not one of the available choices.")
		}
		then(func() { m.zone = z })
	}
	if name := f.get("pool"); name != "" {
		p := rq.poolByName(name)
		if p == nil {
			errs.add("pool", "Select a valid choice. That choice is not one of the available choices.")
		}
		then(func() { m.pool = p })
	}
	rq.editHardware(m, f, errs, then)
	rq.editPower(m, f, then)
	return func() {
		for _, change := range changes {
			change()
		}
	}
}

func (rq *request) editHostname(m *machine, name string, errs formErrors, then func(func())) {
	label, domainName, qualified := strings.Cut(name, ".")
	if complaint := checkHostname(label); complaint != "" {
		errs.add("hostname", "%s", complaint)
		return
	}
	if other := rq.nodeByHostname(label); other != nil && other != m {
		if rq.nodeByID(m.systemID) == nil { // It is being created.
			errs.add("hostname", "Node with this Hostname already exists.")
		} else {
			errs.add("hostname", "Node with hostname '%s' already exists", label)
		}
		return
	}
	if qualified {
		d := rq.domainByName(domainName)
		if d == nil {
			errs.add("hostname", "Nonexistant domain.")
			return
		}
		then(func() { m.domain = d })
	}
	then(func() { m.hostname = label })
}

// maxCores bounds a machine's cores: each core is listed.
const maxCores = 1 << 16

func (rq *request) editHardware(m *machine, f form, errs formErrors, then func(func())) {
	if f.has("description") {
		then(func() { m.description = f.get("description") })
	}
	if arch := f.get("architecture"); arch != "" {
		if !slices.Contains(rq.architectures(), arch) {
			errs.add("architecture", "'%s' is not a valid architecture.  It should be one of: %s.", arch, quoted(rq.architectures()))
		}
		then(func() { m.architecture = arch })
	}
	if f.get("cpu_count") != "" {
		n := f.integer("cpu_count", 0, errs)
		atLeastField(errs, "cpu_count", n, 0)
		atMostField(errs, "cpu_count", n, maxCores)
		then(func() { m.cpuCount = n })
	}
	if f.get("memory") != "" {
		n := f.integer("memory", 0, errs)
		then(func() { m.memory = n })
	}
}

const powerParameterPrefix = "power_parameters_"

func (rq *request) editPower(m *machine, f form, then func(func())) {
	if kind, params := powerIn(f, m); params != nil {
		then(func() { m.powerType, m.powerParams = kind, params })
	}
}

// powerIn returns how a form wants a machine to be switched: nil if it does not say. With another driver, the machine
// keeps none of its parameters.
func powerIn(f form, m *machine) (kind string, params map[string]string) {
	given := map[string]string{}
	for _, key := range f.order {
		if name, ok := strings.CutPrefix(key, powerParameterPrefix); ok && name != "skip_check" {
			given[name] = strings.TrimSpace(f.get(key)) // as Django's forms do
		}
	}
	switch kind = orDefault(f.get("power_type"), m.powerType); {
	case kind != m.powerType:
		return kind, given
	case len(given) == 0:
		return kind, nil
	}
	params = m.parameters()
	maps.Copy(params, given)
	return kind, params
}

func quoted(list []string) string {
	out := make([]string, 0, len(list))
	for _, text := range list {
		out = append(out, "'"+text+"'")
	}
	return strings.Join(out, ", ")
}

// deleteMachineCall is DELETE. The VM of a composed machine is deleted first, inside the request; the row is deleted
// even if that failed.
func (rq *request) deleteMachineCall() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	force, err := rq.query.boolean("force", false)
	if err != nil {
		return nil, err
	}
	if err := rq.refuseWhileHost(m, force); err != nil {
		return nil, err
	}
	if h := m.host; h != nil {
		takes := rq.timings.decompose()
		turn := h.turn(rq.time.now(), takes)
		rq.unlocked(func() {
			rq.sleep(turn + takes)
			err = h.hv.Delete(m.vm)
		})
		rq.reportDecompose(h, m, err)
	}
	if !m.gone {
		rq.removeMachine(m)
	}
	if m.host != nil {
		rq.recount(m.host)
	}
	return noContent{}, nil
}

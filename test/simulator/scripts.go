// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hardwareKind is what a script tests, with MAAS's numbers (HARDWARE_TYPE in metadataserver/enum.py).
type hardwareKind int

const (
	hardwareNode hardwareKind = iota
	hardwareCPU
	hardwareMemory
	hardwareStorage
	hardwareNetwork
	hardwareGPU
)

var hardwareNames = []string{"Node", "CPU", "Memory", "Storage", "Network", "GPU"}

// tag is the tag that MAAS gives scripts of this kind.
func (h hardwareKind) tag() string { return strings.ToLower(hardwareNames[h]) }

// How a script runs beside others.
const (
	runsAlone = iota
	runsOnAllDevices
	runsWithAll
)

var parallelNames = []string{"Disabled", "Run along other instances of this script", "Run along any other script."}

// scriptParameter is a parameter of a script, in MAAS's form: storage, interface, url, string, password, runtime, choice.
type scriptParameter struct {
	name, kind string
	value      string // the default
	choices    []string
	required   bool
}

func (p scriptParameter) isDevice() bool { return p.kind == "storage" || p.kind == "interface" }

// script is a testing script.
type script struct {
	id          int
	name, title string
	description string
	tags        []string
	hardware    hardwareKind
	parallel    int
	timeout     time.Duration // 0: none
	parameters  []scriptParameter
	packages    []string
	destructive bool
	builtin     bool
	networks    bool // it is run with the machine's own network configuration
	forHardware []string
	exit        int // what it returns, unless a tester says otherwise
	created     time.Time
	revision    int
}

// isCalled reports whether the script is meant by a name or a tag.
func (sc *script) isCalled(name string) bool {
	return sc.name == name || slices.Contains(sc.tags, name)
}

// has reports whether the script has a parameter.
func (sc *script) has(name string) bool {
	return slices.ContainsFunc(sc.parameters, func(p scriptParameter) bool { return p.name == name })
}

// fits reports whether a machine has the hardware that a script is for. What MAAS knows by modaliases no machine has here.
func (sc *script) fits(m *machine) bool {
	return len(sc.forHardware) == 0 || slices.ContainsFunc(sc.forHardware, func(wanted string) bool {
		key, value, _ := strings.Cut(wanted, ":")
		return value != "" && m.hardware[key] == value
	})
}

var (
	disksParameter     = scriptParameter{name: "storage", kind: "storage"}
	interfaceParameter = scriptParameter{name: "interface", kind: "interface"}
	urlParameter       = scriptParameter{name: "url", kind: "url", value: "https://connectivity-check.ubuntu.com", required: true}
)

// builtinScripts are the testing scripts that come with MAAS 3.3 to 4.0 (metadataserver/builtin_scripts).
var builtinScripts = []script{
	{name: "smartctl-validate", title: "Storage status", tags: []string{"commissioning"}, hardware: hardwareStorage, timeout: 5 * time.Minute},
	{name: "smartctl-short", title: "Storage integrity", hardware: hardwareStorage, timeout: 10 * time.Minute},
	{name: "smartctl-long", title: "Storage integrity", hardware: hardwareStorage},
	{name: "smartctl-conveyance", title: "Storage integrity", hardware: hardwareStorage},
	{name: "memtester", title: "Memory integrity", hardware: hardwareMemory, packages: []string{"memtester"}},
	{name: "stress-ng-cpu-long", title: "CPU validation", hardware: hardwareCPU, timeout: 14 * time.Hour},
	{name: "stress-ng-cpu-short", title: "CPU validation", hardware: hardwareCPU, timeout: 5 * time.Minute},
	{name: "stress-ng-memory-long", title: "Memory integrity", hardware: hardwareMemory, timeout: 14 * time.Hour},
	{name: "stress-ng-memory-short", title: "Memory integrity", hardware: hardwareMemory, timeout: 5 * time.Minute},
	{name: "ntp", title: "NTP validation", tags: []string{"ntp"}, hardware: hardwareNetwork, parallel: runsWithAll, timeout: time.Minute},
	{name: "badblocks", title: "Storage integrity", hardware: hardwareStorage},
	{name: "badblocks-destructive", title: "Storage integrity", hardware: hardwareStorage, destructive: true},
	{name: "7z", title: "CPU benchmark", hardware: hardwareCPU, timeout: 5 * time.Minute, packages: []string{"p7zip-full"}},
	{name: "fio", title: "Storage benchmark", hardware: hardwareStorage, destructive: true, packages: []string{"fio"}},
	{name: "internet-connectivity", title: "Internet Connectivity Validation", tags: []string{"internet", "network-validation"},
		hardware: hardwareNetwork, parameters: []scriptParameter{interfaceParameter, urlParameter}, networks: true, timeout: 5 * time.Minute},
	{name: "gateway-connectivity", title: "Gateway Connectivity Validation", tags: []string{"network-validation"},
		hardware: hardwareNetwork, parameters: []scriptParameter{interfaceParameter}, networks: true, timeout: 5 * time.Minute},
	{name: "rack-controller-connectivity", title: "Gateway Connectivity Validation", tags: []string{"network-validation"},
		hardware: hardwareNetwork, parameters: []scriptParameter{interfaceParameter}, networks: true, timeout: 5 * time.Minute},
}

// buildScripts makes MAAS's own scripts and those of the description.
func (s *Simulator) buildScripts(region *Region) error {
	for _, sc := range builtinScripts {
		sc.builtin, sc.tags = true, slices.Clone(sc.tags)
		if sc.hardware == hardwareStorage {
			sc.parameters = []scriptParameter{disksParameter}
		}
		if len(sc.parameters) > 0 {
			sc.parallel = runsOnAllDevices
		}
		s.addScript(&sc)
	}
	for _, d := range region.Scripts {
		sc, err := d.script()
		if err == nil && s.scriptNamed(sc.name) != nil {
			err = fmt.Errorf("there is one of this name")
		}
		if err != nil {
			return fmt.Errorf("script %s: %w", d.Name, err)
		}
		s.addScript(sc)
	}
	return nil
}

// script makes a script of its description.
func (d RegionScript) script() (*script, error) {
	hardware, err := hardwareNamed(d.Hardware)
	if err != nil {
		return nil, err
	}
	sc := &script{
		name: d.Name, tags: slices.Clone(d.Tags), hardware: hardware, timeout: timeOf(d.Timeout), destructive: d.Destructive,
		forHardware: d.ForHardware,
	}
	for _, p := range d.Parameters {
		sc.parameters = append(sc.parameters, scriptParameter{
			name: p.Name, kind: p.Type, value: p.Default, choices: p.Choices, required: p.Required,
		})
	}
	if slices.ContainsFunc(sc.parameters, scriptParameter.isDevice) {
		sc.parallel = runsOnAllDevices
	}
	return sc, nil
}

// hardwareNamed returns the kind of hardware that MAAS calls so (translate_hardware_type in maasserver/models/script.py).
func hardwareNamed(name string) (hardwareKind, error) {
	for i, known := range hardwareNames {
		if strings.EqualFold(known, orDefault(name, "node")) || name == strconv.Itoa(i) {
			return hardwareKind(i), nil
		}
	}
	return 0, fmt.Errorf("Hardware type must be node, cpu, memory, storage, or gpu") //nolint:staticcheck // MAAS's text
}

// addScript adds a script, with the tags that MAAS gives it (Script.save in maasserver/models/script.py).
func (s *Simulator) addScript(sc *script) {
	if sc.destructive {
		sc.tags = append(sc.tags, "destructive")
	}
	if !slices.Contains(sc.tags, sc.hardware.tag()) {
		sc.tags = append(sc.tags, sc.hardware.tag())
	}
	sc.id, sc.revision, sc.created = s.db.next("script"), s.db.next("versionedtextfile"), s.time.clock.Now().UTC()
	s.db.scripts = append(s.db.scripts, sc)
}

func (s *Simulator) scriptNamed(name string) *script {
	for _, sc := range s.db.scripts {
		if sc.name == name {
			return sc
		}
	}
	return nil
}

// listScripts lists the testing scripts: the simulator has no others.
func (rq *request) listScripts() (any, error) {
	kind := rq.query.get("type")
	switch kind {
	case "", "test", "testing", "2", "commission", "commissioning", "0", "release", "3", "deployment", "4":
	default:
		return nil, badRequest("Script type must be commissioning, testing, release or deployment")
	}
	filters := strings.Split(rq.query.get("filters"), ",")
	out := []any{}
	for _, sc := range rq.db.scripts {
		isTesting := slices.Contains([]string{"", "test", "testing", "2"}, kind)
		if isTesting && (!rq.query.has("filters") || slices.ContainsFunc(filters, sc.isCalled)) {
			out = append(out, renderScript(sc))
		}
	}
	return out, nil
}

// exits finds what a script returns.
var exits = regexp.MustCompile(`(?m)^exit (\d+)$`)

// createScript uploads a testing script. Of its text, only what it returns is read.
func (rq *request) createScript() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	sc, errs := &script{name: rq.data.get("name"), title: rq.data.get("title"), description: rq.data.get("description")}, formErrors{}
	switch {
	case sc.name == "":
		errs.add("name", "This field is required.")
	case rq.scriptNamed(sc.name) != nil:
		errs.add("name", "Script with this Name already exists.")
	}
	text := rq.data.get("script")
	switch {
	case text == "":
		errs.add("script", "This field is required.")
	case !strings.HasPrefix(text, "#!"):
		errs.add("script", "Must start with shebang.")
	}
	if found := exits.FindStringSubmatch(text); found != nil {
		sc.exit, _ = strconv.Atoi(found[1])
	}
	var err error
	if sc.hardware, err = hardwareNamed(rq.data.get("hardware_type")); err != nil {
		errs.add("hardware_type", "%s", err)
	}
	seconds := rq.data.integer("timeout", 0, errs)
	sc.timeout, sc.destructive = time.Duration(seconds)*time.Second, rq.data.checkbox("destructive", false)
	sc.tags, sc.forHardware = splitList(rq.data.get("tags")), splitList(rq.data.get("for_hardware"))
	if err := errs.err(); err != nil {
		return nil, err
	}
	rq.addScript(sc)
	return renderScript(sc), nil
}

// deleteScript deletes a script, with its results.
func (rq *request) deleteScript() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	sc := rq.scriptNamed(rq.vars[0])
	if sc == nil {
		return nil, notFound("Script")
	}
	if sc.builtin {
		return nil, badRequest("Unable to delete default script")
	}
	for _, m := range rq.db.machines {
		for _, set := range m.tests {
			set.results = slices.DeleteFunc(set.results, func(r *scriptResult) bool { return r.script == sc })
		}
	}
	rq.db.scripts = slices.DeleteFunc(rq.db.scripts, func(other *script) bool { return other == sc })
	return noContent{}, nil
}

func renderScript(sc *script) object {
	parameters := object{}
	for _, p := range sc.parameters {
		one := object{"type": p.kind}
		if p.kind == "storage" {
			one["argument_format"] = "{path}"
		}
		if p.value != "" {
			one["default"], one["required"] = p.value, p.required
		}
		if len(p.choices) > 0 {
			one["choices"] = p.choices
		}
		parameters[p.name] = one
	}
	packages := object{}
	if len(sc.packages) > 0 {
		packages["apt"] = sc.packages
	}
	return object{
		"id": sc.id, "name": sc.name, "title": sc.title, "description": sc.description, "tags": nonNil(sc.tags), "type": 2,
		"type_name": "Testing script", "hardware_type": int(sc.hardware), "hardware_type_name": hardwareNames[sc.hardware],
		"parallel": sc.parallel, "parallel_name": parallelNames[sc.parallel], "results": object{}, "parameters": parameters,
		"packages": packages, "timeout": pythonDuration(sc.timeout), "destructive": sc.destructive,
		"for_hardware": nonNil(sc.forHardware), "may_reboot": false, "recommission": false,
		"history": []any{object{"id": sc.revision, "comment": nil, "created": mailTime(sc.created)}},
		"default": sc.builtin, "apply_configured_networking": sc.networks, "resource_uri": apiRoot + "scripts/" + sc.name,
	}
}

func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// pythonDuration writes a duration as Python does: 0:05:00, or 2 days, 1:00:00.
func pythonDuration(d time.Duration) string {
	seconds := int(d.Seconds())
	clock := fmt.Sprintf("%d:%02d:%02d", seconds/3600%24, seconds/60%60, seconds%60)
	switch days := seconds / 86400; days {
	case 0:
		return clock
	case 1:
		return "1 day, " + clock
	default:
		return fmt.Sprintf("%d days, %s", days, clock)
	}
}

// mailTime writes a time as Python's format_datetime does.
func mailTime(at time.Time) string { return at.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700") }

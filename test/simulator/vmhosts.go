// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// consoleTag is MAAS's tag on all VM hosts.
const consoleTag = "pod-console-logging"

func vmHostsGone() *apiError {
	return textError(http.StatusGone, "VM host (KVM) support has been removed from MAAS.")
}

// hostFor returns the VM host of the path. If it is missing, reading returns "Not Found", everything else names the
// model.
func (rq *request) hostFor(reading bool) (*vmHost, error) {
	id, err := strconv.Atoi(rq.vars[0])
	if h := rq.hostByID(id); err == nil && h != nil {
		return h, nil
	}
	if reading {
		return nil, &apiError{status: http.StatusNotFound, contentType: "text/plain", body: []byte("Not Found")}
	}
	return nil, notFound("Pod")
}

// hostForAdmin is hostFor for calls that only administrators may make, and from 3.8 on who may edit the machines of its
// pool.
func (rq *request) hostForAdmin() (*vmHost, error) {
	if !rq.hasEntitlements() && !rq.user.admin {
		return nil, adminOnly()
	}
	h, err := rq.hostFor(false)
	if err == nil && !rq.mayIn(rq.user, editMachines, h.pool) {
		return nil, forbidden("")
	}
	return h, err
}

func (rq *request) listVMHosts() (any, error) {
	out := []any{}
	for _, h := range rq.db.hosts {
		out = append(out, rq.renderVMHost(h))
	}
	return out, nil
}

func (rq *request) readVMHost() (any, error) {
	h, err := rq.hostFor(true)
	if err != nil {
		return nil, err
	}
	return rq.renderVMHost(h), nil
}

func (s *Simulator) renderVMHost(h *vmHost) object {
	pools := []any{}
	var total, used int64
	for _, p := range h.storage {
		pools = append(pools, object{
			"id": p.id, "name": p.name, "type": p.kind, "path": p.path, "total": p.total, "used": p.used,
			"available": p.total - p.used, "default": p.name == h.defaultPool,
		})
		total, used = total+p.total, used+p.used
	}
	host := object{"system_id": nil, "__incomplete__": true}
	if m := s.hostNode(h); m != nil {
		host["system_id"] = m.systemID
	}
	architectures, capabilities := h.architectures, []string{}
	if architectures == nil {
		architectures = []string{}
	} else {
		capabilities = []string{"composable", "dynamic_local_storage", "over_commit", "storage_pools"}
	}
	return object{
		"id": h.id, "name": h.name, "type": h.kind, "version": h.version, "architectures": architectures,
		"capabilities": capabilities, "zone": renderZone(h.zone), "pool": renderPool(h.pool), "tags": h.tags, "host": host,
		"total": object{"cores": h.totalCores, "memory": h.totalMemory, "local_storage": total},
		"used":  object{"cores": h.usedCores, "memory": h.usedMemory, "local_storage": used},
		"available": object{
			"cores": h.totalCores - h.usedCores, "memory": h.totalMemory - h.usedMemory, "local_storage": total - used,
		},
		"storage_pools": pools, "cpu_over_commit_ratio": pyFloat(h.cpuRatio), "memory_over_commit_ratio": pyFloat(h.memRatio),
		"default_macvlan_mode": nil, "resource_uri": fmt.Sprintf("%svm-hosts/%d/", apiRoot, h.id),
	}
}

// createVMHost registers a host, even if it cannot be reached.
func (rq *request) createVMHost() (any, error) {
	if !rq.may(rq.user, editMachines) {
		return nil, rq.refuseRegistration()
	}
	h, err := rq.newVMHost()
	if err != nil {
		return nil, err
	}
	rq.db.hosts = append(rq.db.hosts, h)
	if err := rq.syncHost(h); err != nil {
		var refusal *apiError
		if errors.As(err, &refusal) {
			rq.db.hosts = slices.DeleteFunc(rq.db.hosts, func(other *vmHost) bool { return other == h })
			return nil, err
		}
		rq.log.Info("Discovering the VM host failed; it is registered all the same", "host", h.name, "reason", err.Error())
	}
	return rq.renderVMHost(h), nil
}

// refuseRegistration is what who may not register VM hosts gets.
func (rq *request) refuseRegistration() error {
	if rq.hasEntitlements() {
		return forbidden("")
	}
	return adminOnly()
}

// newVMHost parses the form.
func (rq *request) newVMHost() (*vmHost, error) {
	errs := formErrors{}
	h := &vmHost{
		kind: rq.data.get("type"), name: rq.data.get("name"), zone: rq.db.zones[0], pool: rq.db.pools[0],
		cpuRatio: 1, memRatio: 1, params: map[string]string{}, tags: []string{},
	}
	switch h.kind {
	case lxdDriver:
	case "":
		errs.add("type", "This field is required.")
	default:
		errs.add("type", "Select a valid choice. %s is not one of the available choices.", h.kind)
	}
	if rq.data.get("power_address") == "" && len(errs) == 0 {
		errs.add("power_address", "This field is required.")
	}
	rq.editVMHost(h, errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	if err := rq.readPowerParams(h); err != nil {
		return nil, err
	}
	if h.kind == "lxd" {
		if complaint := checkKeyPair(h.params["certificate"], h.params["key"]); complaint != "" {
			return nil, textError(http.StatusInternalServerError, "%s", complaint)
		}
		for _, other := range rq.db.hosts {
			if other.kind == h.kind && sameBMC(other.params, h.params) {
				return nil, badRequest("Pod %s with type and parameters already exist.", other.name)
			}
		}
		if !slices.Contains(h.tags, consoleTag) {
			h.tags = append([]string{consoleTag}, h.tags...)
		}
		rq.ensureTag(consoleTag)
	}
	h.id = rq.db.next("bmc")
	if h.name == "" {
		h.name = rq.petname()
	}
	return h, nil
}

// sameBMC reports whether two LXD hosts are one row in MAAS: their parameters are the same, except secrets.
func sameBMC(a, b map[string]string) bool {
	return a["power_address"] == b["power_address"] && a["project"] == b["project"] && a["certificate"] == b["certificate"]
}

// readPowerParams sets the power parameters of the form. An LXD host without certificate and key gets a pair of MAAS's.
func (rq *request) readPowerParams(h *vmHost) error {
	for _, key := range []string{"power_address", "password", "certificate", "key", "project", "power_user", "power_pass"} {
		if rq.data.has(key) {
			h.params[key] = strings.TrimSpace(rq.data.get(key)) // as Django's forms do: a PEM text loses its last newline
		}
	}
	if h.kind != "lxd" {
		return nil
	}
	h.params["project"] = orDefault(h.params["project"], defaultProject)
	var err error
	if h.params["certificate"] == "" && h.params["key"] == "" {
		h.params["certificate"], h.params["key"], err = newKeyPair()
	}
	return err
}

// editVMHost parses the fields that creating and updating share.
func (rq *request) editVMHost(h *vmHost, errs formErrors) {
	f := rq.data
	if name := f.get("zone"); name != "" {
		if h.zone = rq.zoneByName(name); h.zone == nil {
			errs.add("zone", "Select a valid choice. That choice is not one of the available choices.")
		}
	}
	if name := f.get("pool"); name != "" {
		if h.pool = rq.poolByName(name); h.pool == nil {
			errs.add("pool", "Select a valid choice. That choice is not one of the available choices.")
		}
	}
	if name := f.get("name"); name != "" {
		if complaint := checkLabel(name); complaint != "" {
			errs.add("hostname", "%s", complaint)
		}
	}
	h.cpuRatio = rq.ratio("cpu_over_commit_ratio", h.cpuRatio, errs)
	h.memRatio = rq.ratio("memory_over_commit_ratio", h.memRatio, errs)
	if f.has("tags") {
		h.tags = []string{}
		for _, name := range splitList(strings.Join(f.list("tags"), ",")) {
			if !slices.Contains(h.tags, name) {
				h.tags = append(h.tags, name)
			}
		}
	}
}

func (rq *request) ratio(key string, fallback float64, errs formErrors) float64 {
	n := rq.data.number(key, fallback, errs)
	if n < 0 {
		errs.add(key, "Ensure this value is greater than or equal to 0.")
	}
	if n > 10 {
		errs.add(key, "Ensure this value is less than or equal to 10.")
	}
	return n
}

func (rq *request) updateVMHost() (any, error) {
	h, err := rq.hostForAdmin()
	if err != nil {
		return nil, err
	}
	errs, changed := formErrors{}, *h
	rq.editVMHost(&changed, errs)
	if rq.data.has("power_address") && rq.data.get("power_address") == "" {
		errs.add("power_address", "This field is required.")
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	if rq.data.get("name") != "" {
		changed.name = rq.data.get("name")
	}
	*h = changed
	if err := rq.readPowerParams(h); err != nil {
		return nil, err
	}
	if err := rq.syncHost(h); err != nil {
		rq.log.Info("Discovering the VM host failed; it is changed all the same", "host", h.name, "reason", err.Error())
	}
	return rq.renderVMHost(h), nil
}

// refreshVMHost reads the host's data. VMs that MAAS does not know become machines and are commissioned; machines whose
// VM is gone are deleted.
func (rq *request) refreshVMHost() (any, error) {
	h, err := rq.hostForAdmin()
	if err != nil {
		return nil, err
	}
	if err := rq.syncHost(h); err != nil {
		var refusal *apiError
		if errors.As(err, &refusal) {
			return nil, err
		}
		return nil, unavailable("Failed talking to pod: %v", err)
	}
	return rq.renderVMHost(h), nil
}

func (rq *request) vmHostParameters() (any, error) {
	h, err := rq.hostForAdmin()
	if err != nil {
		return nil, err
	}
	return h.params, nil
}

// addVMHostTag adds a text to the host's list. It becomes a tag of machines when the host's next VM gets it.
func (rq *request) addVMHostTag() (any, error) {
	h, err := rq.hostForAdmin()
	name := rq.data.get("tag")
	switch {
	case err != nil:
		return nil, err
	case strings.Contains(name, ","):
		return nil, badRequest(`Tag may not contain a ",".`)
	case name == "":
		return nil, badRequest("No provided tag!")
	case !slices.Contains(h.tags, name):
		h.tags = append(slices.Clone(h.tags), name)
	}
	return rq.renderVMHost(h), nil
}

// deleteVMHost forgets a host and its machines; decompose=true deletes their VMs first.
func (rq *request) deleteVMHost() (any, error) {
	h, err := rq.hostForAdmin()
	if err != nil {
		return nil, err
	}
	if rq.query.checkbox("decompose", false) {
		rq.decomposeAll(h)
	}
	rq.forgetHost(h)
	return noContent{}, nil
}

// decomposeAll deletes the VMs of a host's machines, up to the first that cannot be deleted: MAAS does not try the
// others.
func (rq *request) decomposeAll(h *vmHost) {
	for _, m := range slices.Clone(rq.db.machines) {
		if m.host != h || h.hv == nil {
			continue
		}
		var err error
		rq.unlocked(func() { err = h.hv.Delete(m.vm) })
		rq.reportDecompose(h, m, err)
		if err != nil {
			return
		}
	}
}

// forgetHost deletes a host and its machines in MAAS.
func (s *Simulator) forgetHost(h *vmHost) {
	for _, m := range slices.Clone(s.db.machines) {
		if m.host == h {
			s.removeMachine(m)
		}
	}
	s.db.hosts = slices.DeleteFunc(s.db.hosts, func(other *vmHost) bool { return other == h })
	if m := h.machine; m != nil && m.hostOnly && len(s.hostsOn(m)) == 0 {
		s.removeMachine(m)
	}
}

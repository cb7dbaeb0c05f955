// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// composeSpec is a requested VM.
type composeSpec struct {
	hostname          string
	cores, memory     int // memory MiB
	disks             []vmDisk
	zone              *zone
	pool              *pool
	domain            *domain
	subnets           []*subnet // one per interface; nil: the host's choice
	interfaces        []interfaceWish
	skipCommissioning bool
}

// Limits of the compose form.
const (
	minVMMemory     = 1024
	defaultVMMemory = 2048
	defaultVMDisk   = 8
	// minDisk is the smallest disk that MAAS stores, in bytes.
	minDisk = 4 << 20
	// composeTimeout is how long MAAS waits for a VM.
	composeTimeout = 120 * time.Second
)

func (rq *request) compose() (any, error) {
	h, err := rq.hostForAdmin()
	if err != nil {
		return nil, err
	}
	if h.architectures == nil {
		return nil, badRequest("VM host does not support composability.")
	}
	spec, err := rq.composeSpec(h)
	if err != nil {
		return nil, err
	}
	m, err := rq.composeOn(h, spec)
	if err != nil {
		return nil, err
	}
	if !spec.skipCommissioning {
		rq.startCommission(m, rq.user, len(spec.interfaces) > 0, []string{commissioningTag})
	}
	rq.call.SystemID = m.systemID
	return object{"system_id": m.systemID, "resource_uri": machineURI(m)}, nil
}

// composeSpec reads the form. Zone, pool and domain are ids here.
func (rq *request) composeSpec(h *vmHost) (composeSpec, error) {
	f, errs := rq.data, formErrors{}
	spec := composeSpec{
		hostname: f.get("hostname"), cores: f.integer("cores", 1, errs), memory: f.integer("memory", defaultVMMemory, errs),
		zone: rq.db.zones[0], pool: h.pool, domain: rq.defaultDomain(),
	}
	atLeastField(errs, "cores", spec.cores, 1)
	atMostField(errs, "cores", spec.cores, h.totalCores)
	atLeastField(errs, "memory", spec.memory, minVMMemory)
	atMostField(errs, "memory", spec.memory, h.totalMemory)
	if spec.hostname != "" {
		if rq.nodeByHostname(spec.hostname) != nil {
			errs.add("hostname", "Node with hostname \"%s\" already exists", spec.hostname)
		}
		if complaint := checkHostname(spec.hostname); complaint != "" {
			errs.add("hostname", "%s", complaint)
		}
	}
	rq.composePlace(&spec, errs)
	spec.disks = composeDisks(f.get("storage"), h, errs)
	wishes, complaint := parseInterfaces(f.get("interfaces"))
	if complaint != "" {
		errs.add("interfaces", "%s", complaint)
	}
	spec.interfaces = wishes
	spec.skipCommissioning = f.checkbox("skip_commissioning", false)
	return spec, errs.err()
}

func atLeastField(errs formErrors, field string, value, least int) {
	if value < least {
		errs.add(field, "Ensure this value is greater than or equal to %d.", least)
	}
}

func atMostField(errs formErrors, field string, value, most int) {
	if value > most {
		errs.add(field, "Ensure this value is less than or equal to %d.", most)
	}
}

const noSuchChoice = "Select a valid choice. That choice is not one of the available choices."

// composePlace reads domain, zone and pool, all by id.
func (rq *request) composePlace(spec *composeSpec, errs formErrors) {
	if text := rq.data.get("domain"); text != "" {
		id, err := strconv.Atoi(text)
		if spec.domain = rq.domainByID(id); err != nil || spec.domain == nil {
			errs.add("domain", noSuchChoice)
		}
	}
	if text := rq.data.get("zone"); text != "" {
		at := slices.IndexFunc(rq.db.zones, func(z *zone) bool { return strconv.Itoa(z.id) == text })
		if at < 0 {
			errs.add("zone", noSuchChoice)
		} else {
			spec.zone = rq.db.zones[at]
		}
	}
	if text := rq.data.get("pool"); text != "" {
		at := slices.IndexFunc(rq.db.pools, func(p *pool) bool { return strconv.Itoa(p.id) == text })
		if at < 0 {
			errs.add("pool", noSuchChoice)
		} else {
			spec.pool = rq.db.pools[at]
		}
	}
}

// composeDisks reads "label:SIZE(pool,tag),...", sizes in GB.
func composeDisks(text string, h *vmHost, errs formErrors) []vmDisk {
	wishes, complaint := parseStorage(orDefault(text, fmt.Sprintf("root:%d(local)", defaultVMDisk)))
	if complaint != "" {
		errs.add("storage", "%s", complaint)
		return nil
	}
	var disks []vmDisk
	for _, wish := range wishes {
		disks = append(disks, vmDisk{size: wish.size, pool: h.defaultPool, tags: wish.tags})
	}
	return disks
}

// placeInterfaces finds the subnets of the VM's interfaces.
func (rq *request) placeInterfaces(spec *composeSpec, h *vmHost) error {
	if len(spec.interfaces) == 0 {
		spec.subnets = []*subnet{h.ownSubnet()}
		return nil
	}
	if h.machine == nil {
		return badRequest("Pod must be on a known host if interfaces are specified.")
	}
	var nics []*iface
	for _, wish := range spec.interfaces {
		nics = append(nics, h.interfaceFor(wish))
	}
	bootable := false
	for _, nic := range nics {
		if nic == nil {
			return badRequest("This pod does not match the specified networks.")
		}
		bootable = bootable || nic.vlan != nil && nic.vlan.dhcpOn
		spec.subnets = append(spec.subnets, rq.subnetUnder(nic))
	}
	if !bootable {
		return badRequest("MAAS DHCP must be enabled on at least one VLAN attached to the specified interfaces.")
	}
	return nil
}

// interfaceFor returns the interface of the host's machine for an interface of the VM: of those that fit a bridge, or
// else a bond, and of these the newest (_pick_interface in maasserver/forms/pods.py). nil: none fits.
func (h *vmHost) interfaceFor(wish interfaceWish) (best *iface) {
	for _, nic := range h.machine.ifaces {
		if wish.fits(nic) && (best == nil || attachRank(nic, best) > 0) {
			best = nic
		}
	}
	return best
}

// attachRank compares two interfaces of a host by MAAS's preference for a VM.
func attachRank(a, b *iface) int {
	rank := map[string]int{"bridge": 2, "bond": 1}
	return cmp.Or(cmp.Compare(rank[a.kind], rank[b.kind]), cmp.Compare(a.id, b.id))
}

// subnetUnder returns the subnet of an interface, or, without any, the first of its VLAN.
func (s *Simulator) subnetUnder(nic *iface) *subnet {
	if len(nic.links) > 0 {
		return nic.links[0].subnet
	}
	return s.subnetOn(nic.vlan)
}

// ownSubnet returns the subnet of VMs without a wanted one: that of the host's first interface on a VLAN with DHCP.
func (h *vmHost) ownSubnet() *subnet {
	if h.machine == nil {
		return nil
	}
	for _, nic := range h.machine.ifaces {
		if nic.vlan != nil && nic.vlan.dhcpOn && len(nic.links) > 0 {
			return nic.links[0].subnet
		}
	}
	return nil
}

// composeOn makes the VM on the host and the machine in MAAS.
func (rq *request) composeOn(h *vmHost, spec composeSpec) (*machine, error) {
	if err := h.refuseOverCommit(spec); err != nil {
		return nil, err
	}
	if err := rq.placeInterfaces(&spec, h); err != nil {
		return nil, err
	}
	if spec.hostname == "" {
		spec.hostname = rq.petname()
	}
	wanted := vmSpec{
		name: spec.hostname, cores: spec.cores, memory: spec.memory, disks: spec.disks,
		nics: rq.attachments(h, spec.subnets),
	}
	for i := range spec.interfaces {
		if i < len(wanted.nics) {
			wanted.nics[i].name = ifname(spec.interfaces[i].label)
		}
	}
	for range spec.subnets {
		wanted.macs = append(wanted.macs, rq.newMAC(vmMACPrefix))
	}
	spec.subnets = inDeviceOrder(spec)
	made, err := rq.createVM(h, wanted)
	if err != nil {
		return nil, err
	}
	if rq.hostByID(h.id) != h {
		return nil, notFound("Pod")
	}
	if err := rq.refuseMade(made, spec); err != nil {
		return nil, err
	}
	m := rq.addVM(h, made, spec)
	if spec.skipCommissioning {
		m.status = statusReady
		rq.setDefaultLayout(m)
	}
	rq.publish(m, ChangeCreated, "", m.status.String())
	return m, nil
}

// refuseMade returns what MAAS finds out only when it saves the machine of a VM that is made (create_machine in
// maasserver/models/bmc.py). It undoes nothing: the VM stays on the host under this name.
func (rq *request) refuseMade(made vmFacts, spec composeSpec) error {
	if rq.nodeByHostname(spec.hostname) != nil {
		// Another machine took the name while the VM was made, or the host was refreshed: MAAS's transaction fails at
		// the unique hostname, is repeated, and then refuses the form.
		return invalidField("hostname", "Node with hostname \"%s\" already exists", spec.hostname)
	}
	for _, size := range made.Disks {
		if size < minDisk && spec.skipCommissioning { // Otherwise commissioning finds the disk.
			return invalidField("size", "Ensure this value is greater than or equal to %d.", minDisk)
		}
	}
	return nil
}

// inDeviceOrder returns the subnets of the VM's network cards in the order in which LXD lists them: by name. MAAS names
// the cards in the order of the request, and so confuses them if that differs.
func inDeviceOrder(spec composeSpec) []*subnet {
	if len(spec.interfaces) != len(spec.subnets) {
		return spec.subnets
	}
	order := make([]int, len(spec.subnets))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return strings.Compare(ifname(spec.interfaces[a].label), ifname(spec.interfaces[b].label))
	})
	out := make([]*subnet, 0, len(order))
	for _, at := range order {
		out = append(out, spec.subnets[at])
	}
	return out
}

// ifname returns the name that MAAS makes of a label.
func ifname(label string) string {
	if n, err := strconv.Atoi(label); err == nil && n >= 0 {
		return fmt.Sprintf("eth%d", n)
	}
	if len(label) > maxIfname {
		return fmt.Sprintf("eth-%05x-%s", crc32.ChecksumIEEE([]byte(label))&0xfffff, label[len(label)-5:])
	}
	return label
}

// maxIfname is the maximum length of an interface's name.
const maxIfname = 15

// createVM makes the host create the VM. If that takes too long MAAS gives up, and the VM is created all the same.
func (rq *request) createVM(h *vmHost, wanted vmSpec) (made vmFacts, err error) {
	takes := rq.timings.compose()
	turn := h.turn(rq.time.now(), takes)
	if turn+takes > composeTimeout {
		rq.in(turn+takes, func() {
			rq.onHost(h.hv, func() error { _, err := h.hv.Create(wanted); return err }, func(err error) {
				if err != nil {
					rq.log.Info("The late VM could not be made", "host", h.name, "vm", wanted.name, "reason", err.Error())
				}
			})
		})
		rq.unlocked(func() { rq.sleep(composeTimeout) })
		return made, unavailable("Unable to compose a machine because '%s' driver timed out after %d seconds.",
			h.kind, int(composeTimeout.Seconds()))
	}
	rq.unlocked(func() {
		rq.sleep(turn + takes/2)
		made, err = h.hv.Create(wanted)
		rq.sleep(takes / 2) // The VM exists on the host before MAAS gets the response.
	})
	var full noRoomError
	switch {
	case errors.As(err, &full):
		err = textError(http.StatusInternalServerError, "%v", err)
	case err != nil:
		err = unavailable("Unable to compose machine because: Failed talking to pod: %v", err)
	}
	return made, err
}

// turn returns how long a call that takes so long has to wait for its turn on a host.
func (h *vmHost) turn(now, takes time.Duration) time.Duration {
	if !h.serial {
		return 0
	}
	begins := max(now, h.busyUntil)
	h.busyUntil = begins + takes
	return begins - now
}

// refuseOverCommit checks the host's cores and memory with their ratios, and returns MAAS's message.
func (h *vmHost) refuseOverCommit(spec composeSpec) error {
	complaint := ""
	for _, check := range []struct {
		what        string
		ratio       float64
		total, used int
		wanted      int
	}{
		{"CPU", h.cpuRatio, h.totalCores, h.usedCores, spec.cores},
		{"Memory", h.memRatio, h.totalMemory, h.usedMemory, spec.memory},
	} {
		if float64(check.used+check.wanted) > float64(check.total)*check.ratio {
			complaint += fmt.Sprintf("%s overcommit ratio is %s and there are %d available resources; %d requested.",
				check.what, pythonFloat(check.ratio), check.total-check.used, check.wanted)
		}
	}
	if complaint != "" {
		return unavailable("Unable to compose KVM instance in '%s'. %s", h.name, complaint)
	}
	return nil
}

// machineName is the pattern of VM names that create_machine in maasserver/models/bmc.py keeps (_machine_name_re); the
// machine of any other VM gets a made-up name.
var machineName = regexp.MustCompile(`^(?i)[a-z][a-z0-9-]+$`)

// addVM makes the machine of a VM on the host.
func (s *Simulator) addVM(h *vmHost, vm vmFacts, spec composeSpec) *machine {
	name := spec.hostname
	if s.nodeByHostname(name) != nil || !machineName.MatchString(name) {
		name = s.petname()
	}
	m := s.newMachine(name)
	m.host, m.vm, m.vmID = h, vm.Name, s.db.next("virtualmachine")
	m.architecture, m.cpuCount, m.memory = h.architectures[0], vm.Cores, vm.Memory
	m.zone, m.pool, m.powerType = spec.zone, spec.pool, h.kind
	if spec.domain != nil {
		m.domain = spec.domain
	}
	m.running, m.powerState, m.bootMethod = vm.Running, onOff(vm.Running), bootUEFI
	for i, size := range vm.Disks {
		if size < minDisk {
			continue
		}
		pool := h.defaultPool
		if i < len(vm.pools) {
			pool = vm.pools[i]
		}
		s.addDisk(m, size, diskName(i), pool)
		if i < len(spec.disks) {
			m.disks[len(m.disks)-1].tags = spec.disks[i].tags
		}
	}
	for i, mac := range vm.MACs {
		s.addVMInterface(m, h, spec, i, mac)
	}
	for _, name := range h.tags {
		m.tags = append(m.tags, s.ensureTag(name))
	}
	s.db.machines = append(s.db.machines, m)
	s.recount(h)
	return m
}

func (s *Simulator) addVMInterface(m *machine, h *vmHost, spec composeSpec, i int, mac string) {
	nic := &iface{
		id: s.db.next("interface"), name: fmt.Sprintf("eth%d", i), kind: "physical", mac: mac, enabled: true, machine: m,
	}
	if i < len(spec.interfaces) {
		nic.name = ifname(spec.interfaces[i].label)
	}
	m.ifaces = append(m.ifaces, nic)
	var sn *subnet
	switch {
	case i < len(spec.subnets):
		sn = spec.subnets[i]
	default:
		sn = h.ownSubnet()
	}
	if sn == nil {
		return
	}
	nic.vlan = sn.vlan
	// MAAS knows the VLAN from the host, and takes its first subnet, even if another one was requested. Commissioning
	// may change that.
	s.addLink(nic, allocAuto, s.subnetOn(nic.vlan), noAddress)
}

// composeForAllocate makes a machine on a host that fits, for an allocate that found none. The machine is dynamic:
// releasing it deletes it and its VM.
func (rq *request) composeForAllocate(constraints form) *machine {
	if !rq.hasVMHosts() {
		return nil
	}
	for _, h := range slices.Clone(rq.db.hosts) {
		spec, ok := rq.specForAllocate(h, constraints)
		if !ok || h.refuseOverCommit(spec) != nil {
			continue
		}
		m, err := rq.composeOn(h, spec)
		if err != nil {
			continue
		}
		m.dynamic = true
		return m
	}
	return nil
}

// specForAllocate turns constraints into a VM, if the host fits them. MAAS checks only zone, tags and the host itself,
// and the VM is in the default zone.
func (rq *request) specForAllocate(h *vmHost, f form) (composeSpec, bool) {
	if h.architectures == nil || !h.fitsConstraints(f) {
		return composeSpec{}, false
	}
	errs := formErrors{}
	spec := composeSpec{
		cores: int(f.number("cpu_count", 1, errs)), memory: int(f.number("mem", defaultVMMemory, errs)),
		zone: rq.db.zones[0], pool: h.pool, domain: rq.defaultDomain(), skipCommissioning: true,
	}
	atMostField(errs, "cores", spec.cores, h.totalCores)
	atLeastField(errs, "memory", spec.memory, minVMMemory)
	atMostField(errs, "memory", spec.memory, h.totalMemory)
	spec.disks = composeDisks(f.get("storage"), h, errs)
	spec.interfaces, _ = parseInterfaces(f.get("interfaces"))
	return spec, len(errs) == 0
}

// fitsConstraints reports whether allocate may compose on the host.
func (h *vmHost) fitsConstraints(f form) bool {
	for _, text := range f.list("tags") {
		if !hasAll(h.tags, splitList(text)) {
			return false
		}
	}
	return (!f.has("zone") || f.get("zone") == h.zone.name) &&
		(!f.has("not_tags") || !hasAll(h.tags, f.list("not_tags"))) &&
		(!f.has("pod") || slices.Contains(f.list("pod"), h.name)) && !slices.Contains(f.list("not_pod"), h.name) &&
		!slices.Contains(f.list("not_pod_type"), h.kind)
}

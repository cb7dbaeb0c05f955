// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// rackID is the system id of the region's rack controller, which VLANs with DHCP show.
const rackID = "w6fmc8"

// build makes the region of the description.
func (s *Simulator) build(region *Region) error {
	s.db = &store{seq: map[string]int{}, config: defaultConfig()}
	for key, value := range region.Config {
		s.db.config[key] = value
	}
	s.buildUsers(region)
	s.buildNames(region)
	s.buildGroups(region)
	if err := s.buildScripts(region); err != nil {
		return err
	}
	if err := s.buildSubnets(region); err != nil {
		return err
	}
	s.buildImages(region)
	for _, group := range region.Groups {
		for _, name := range group.hostnames() {
			if err := s.buildMachine(group, name); err != nil {
				return err
			}
		}
	}
	for _, h := range region.VMHosts {
		if err := s.buildVMHost(h); err != nil {
			return err
		}
	}
	return nil
}

func (s *Simulator) buildUsers(region *Region) {
	for _, described := range region.Users {
		u := &user{name: described.Name, email: described.Email, admin: described.Admin}
		for _, key := range described.Keys {
			parts := strings.SplitN(key, ":", 3)
			u.keys = append(u.keys, apiKey{parts[0], parts[1], parts[2]})
		}
		if len(u.keys) == 0 {
			u.keys = []apiKey{{s.randomText(18), s.randomText(18), s.randomText(32)}}
		}
		s.db.users = append(s.db.users, u)
	}
}

func (s *Simulator) buildNames(region *Region) {
	st := s.db
	st.zones = []*zone{{id: st.next("zone"), name: "default"}}
	for _, z := range region.Zones {
		if z.Name == "default" {
			st.zones[0].description = z.Description
			continue
		}
		st.zones = append(st.zones, &zone{st.next("zone"), z.Name, z.Description})
	}
	st.pools = []*pool{{id: 0, name: "default", description: "Default pool"}}
	for _, p := range region.Pools {
		if p.Name != "default" {
			st.pools = append(st.pools, &pool{st.next("pool"), p.Name, p.Description})
		}
	}
	for i, d := range region.Domains {
		st.domains = append(st.domains, &domain{id: i, name: d.Name, authoritative: d.Authoritative == nil || *d.Authoritative, isDefault: d.Default})
	}
	st.seq["domain"] = len(st.domains) - 1
	if s.defaultDomain() == nil {
		st.domains[0].isDefault = true
	}
	for _, t := range region.Tags {
		st.tags = append(st.tags, &tag{name: t.Name, comment: t.Comment})
	}
}

func (s *Simulator) buildSubnets(region *Region) error {
	for _, described := range region.Subnets {
		cidr, err := netip.ParsePrefix(described.CIDR)
		if err != nil {
			return fmt.Errorf("subnet %q: %w", described.CIDR, err)
		}
		sn := &subnet{
			id: s.db.next("subnet"), name: described.Name, cidr: cidr, managed: true,
			dnsServers: described.DNSServers, vlan: s.buildVLAN(described),
		}
		if sn.name == "" {
			sn.name = described.CIDR
		}
		if described.Gateway != "" {
			if sn.gateway, err = netip.ParseAddr(described.Gateway); err != nil {
				return fmt.Errorf("subnet %q: gateway: %w", described.CIDR, err)
			}
		}
		s.db.subnets = append(s.db.subnets, sn)
		s.buildRanges(sn, rangeDynamic, described.DynamicRanges)
		s.buildRanges(sn, rangeReserved, described.Reserved)
	}
	return nil
}

func (s *Simulator) buildRanges(sn *subnet, kind string, ranges []RegionRange) {
	for _, r := range ranges {
		s.db.ranges = append(s.db.ranges, &ipRange{
			id: s.db.next("iprange"), kind: kind, subnet: sn, user: s.db.users[0],
			start: netip.MustParseAddr(r.Start), end: netip.MustParseAddr(r.End),
		})
	}
}

func (s *Simulator) buildVLAN(described RegionSubnet) *vlan {
	fabric, space := described.Fabric, described.Space
	if fabric == "" {
		fabric = "fabric-0"
	}
	if space == "" {
		space = "undefined"
	}
	fabricID := -1
	for _, v := range s.db.vlans {
		if v.fabric == fabric && v.vid == described.VID {
			v.dhcpOn = v.dhcpOn || described.DHCP
			return v
		}
		if v.fabric == fabric {
			fabricID = v.fabricID
		}
	}
	if fabricID < 0 {
		fabricID = s.db.next("fabric") - 1
	}
	name := ""
	if described.VID == 0 {
		name = untaggedName
	}
	v := &vlan{
		id: s.db.next("vlan"), vid: described.VID, fabricID: fabricID, fabric: fabric, name: name, mtu: 1500,
		dhcpOn: described.DHCP, space: space, rack: rackID,
	}
	s.db.vlans = append(s.db.vlans, v)
	return v
}

// synced architectures: the kernel that comes with a series.
var seriesKernel = map[string]string{
	"bionic": "18.04", "focal": "20.04", "jammy": "22.04", "noble": "24.04",
}

func (s *Simulator) buildImages(region *Region) {
	for _, described := range region.Images {
		im := &image{
			id: s.db.next("image"), name: described.Name, architecture: described.Architecture, uploaded: described.Uploaded,
		}
		if im.architecture == "" {
			im.architecture = "amd64/generic"
			_, series, _ := strings.Cut(im.name, "/")
			if kernel := seriesKernel[series]; kernel != "" && !im.uploaded {
				im.architecture = "amd64/ga-" + kernel
			}
		}
		s.addFiles(im)
		s.db.images = append(s.db.images, im)
	}
}

// addFiles gives a described image what MAAS would have for it.
func (s *Simulator) addFiles(im *image) {
	files := [][2]string{{"boot-kernel", "boot-kernel"}, {"boot-initrd", "boot-initrd"}, {"squashfs", "squashfs"}}
	set := &imageSet{version: "20261101", label: "stable"}
	if im.uploaded {
		files = [][2]string{{s.uploadedName("root-tgz"), "root-tgz"}}
		set.label, im.baseImage = "uploaded", "ubuntu/"+s.configText("commissioning_distro_series")
	}
	im.sets = []*imageSet{set}
	for _, file := range files {
		sum := sha256.Sum256([]byte(im.name + im.architecture + file[1]))
		size := int64(64 << 20)
		set.files = append(set.files, &imageFile{
			id: s.db.next("image file"), set: set, name: file[0], kind: file[1], sha256: hex.EncodeToString(sum[:]), size: size,
			stored: &storedFile{}, everyoneHasSynced: true,
		})
	}
}

func (s *Simulator) buildMachine(g RegionMachine, name string) error {
	m := s.newMachine(name)
	m.architecture = orDefault(g.Architecture, "amd64/generic")
	m.cpuCount, m.memory = g.Cores, g.Memory
	if m.zone = s.zoneByName(orDefault(g.Zone, "default")); m.zone == nil {
		return fmt.Errorf("machine %s: no zone %q", name, g.Zone)
	}
	if m.pool = s.poolByName(orDefault(g.Pool, "default")); m.pool == nil {
		return fmt.Errorf("machine %s: no pool %q", name, g.Pool)
	}
	if err := g.StorageExtra.validate(); err != nil {
		return fmt.Errorf("machine %s: %w", name, err)
	}
	if g.Domain != "" {
		if m.domain = s.domainByName(g.Domain); m.domain == nil {
			return fmt.Errorf("machine %s: no domain %q", name, g.Domain)
		}
	}
	m.hardware, m.storageExtra, m.isDPU = g.Hardware, g.StorageExtra, g.DPU
	m.powerType = "ipmi"
	m.powerParams = map[string]string{"power_address": fmt.Sprintf("10.255.%d.%d", m.id/250, m.id%250+1)}
	for i, size := range g.Disks {
		s.addDisk(m, int64(size)*1000*1000*1000, diskName(i), "")
		if i < len(g.DiskTags) {
			m.disks[i].tags = g.DiskTags[i]
		}
	}
	for _, tagName := range g.Tags {
		m.tags = append(m.tags, s.ensureTag(tagName))
	}
	nics := g.NICs
	if len(nics) == 0 && len(s.db.subnets) > 0 {
		nics = []RegionNIC{{}}
	}
	for i, nic := range nics {
		sn := s.subnetBySpecifier(orDefault(nic.Subnet, s.db.subnets[0].cidr.String()))
		if sn == nil {
			return fmt.Errorf("machine %s: no subnet %q", name, nic.Subnet)
		}
		s.addInterface(m, orDefault(nic.Name, fmt.Sprintf("enp%ds0", i+1)), metalMACPrefix, sn)
	}
	if err := s.startAs(m, g.Status); err != nil {
		return err
	}
	s.db.machines = append(s.db.machines, m)
	return nil
}

// startAs puts a machine of the description into its first status.
func (s *Simulator) startAs(m *machine, short string) error {
	m.status = statusReady
	if short != "" {
		known := false
		if m.status, known = statusByShortName(short); !known {
			return fmt.Errorf("machine %s: status %q is none of MAAS's", m.hostname, short)
		}
	}
	m.powerState, m.netboot = "off", true
	if m.status != statusNew {
		m.commissioned, m.commissionStatus = true, scriptPassed
		m.bootMethod = bootUEFI
		s.setDefaultLayout(m)
		m.commissionResult = s.db.next("scriptset")
		if err := s.passedTests(m); err != nil {
			return err
		}
	}
	switch m.status {
	case statusDeployed, statusAllocated, statusFailedDeployment:
		m.owner = s.db.users[0]
	}
	if m.status == statusDeployed {
		m.powerState, m.running, m.netboot = "on", true, false
		m.osystem, m.series, m.hweKernel = "ubuntu", "jammy", "ga-22.04"
		return s.claimAutoAddresses(m)
	}
	return nil
}

// buildVMHost makes a VM host and the Deployed machine that it runs on.
func (s *Simulator) buildVMHost(d RegionVMHost) error {
	address := orDefault(d.Address, fmt.Sprintf("10.254.%d.%d:8443", len(s.lab)/250, len(s.lab)%250+1))
	lab := &simulatedHost{facts: hostFacts{
		name: d.Name, version: orDefault(d.Version, "5.0.2"), cores: d.Cores, memory: d.Memory,
	}}
	for _, p := range d.StoragePools {
		kind := orDefault(p.Type, "zfs")
		lab.facts.pools = append(lab.facts.pools, storagePool{
			id: p.Name, name: p.Name, kind: kind, path: "/var/snap/lxd/common/lxd/storage-pools/" + p.Name,
			total: int64(p.Size) * 1000 * 1000 * 1000,
		})
	}
	s.lab[hostKey(address)] = lab
	if d.Unregistered {
		return nil
	}
	if !s.hasVMHosts() {
		return nil
	}
	group := RegionMachine{
		Zone: d.Zone, Pool: d.Pool, Cores: d.Cores, Memory: d.Memory, Disks: []int{100}, Status: "deployed",
	}
	group.NICs = d.NICs
	if d.Subnet != "" && len(d.NICs) == 0 {
		group.NICs = []RegionNIC{{Subnet: d.Subnet}}
	}
	if err := s.buildMachine(group, d.Name); err != nil {
		return err
	}
	m := s.db.machines[len(s.db.machines)-1]
	h := &vmHost{
		id: s.db.next("bmc"), name: d.Name, kind: "lxd", zone: m.zone, pool: m.pool, machine: m, hv: labProject{lab, orDefault(d.Project, defaultProject)},
		cpuRatio: 1, memRatio: 1,
		params: map[string]string{"power_address": address, "project": orDefault(d.Project, defaultProject)},
		tags:   append([]string{consoleTag}, d.Tags...), serial: d.Serial,
	}
	s.ensureTag(consoleTag)
	for _, name := range d.Tags {
		s.ensureTag(name)
	}
	facts, err := h.hv.Discover()
	if err != nil {
		return fmt.Errorf("VM host %s: %w", d.Name, err)
	}
	s.learn(h, facts)
	h.known = true
	s.db.hosts = append(s.db.hosts, h)
	return nil
}

// newMachine makes a machine with ids and defaults; the caller adds it to the store.
func (s *Simulator) newMachine(hostname string) *machine {
	return &machine{
		id: s.db.next("node"), systemID: s.newSystemID(), hostname: hostname, domain: s.defaultDomain(),
		zone: s.db.zones[0], pool: s.db.pools[0], ownerData: map[string]string{}, netboot: true, powerState: "unknown",
		failing: map[string]string{}, outcomes: map[string]TestOutcome{}, commissionStatus: scriptNone,
		created: s.time.clock.Now().UTC(), previous: statusNew, powerParams: map[string]string{},
	}
}

func (s *Simulator) addDisk(m *machine, size int64, name, storagePool string) {
	d := &disk{
		id: s.db.next("blockdevice"), name: name, size: size, blockSize: minBlockSize, model: "QEMU HARDDISK", storagePool: storagePool,
	}
	d.serial = "S" + m.systemID + name
	d.idPath = "/dev/disk/by-id/" + d.serial
	if storagePool != "" {
		d.serial = "lxd_" + name
		if len(m.disks) == 0 {
			d.serial = "lxd_root"
		}
		d.idPath = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_" + d.serial
	}
	m.disks = append(m.disks, d)
}

// addInterface gives the machine a network card with an AUTO link on the subnet (nil: not connected).
func (s *Simulator) addInterface(m *machine, name, macPrefix string, sn *subnet) {
	nic := &iface{
		id: s.db.next("interface"), name: name, kind: "physical", mac: s.newMAC(macPrefix), enabled: true, machine: m,
	}
	if sn != nil {
		nic.vlan = sn.vlan
		s.addLink(nic, allocAuto, sn, netip.Addr{})
	}
	m.ifaces = append(m.ifaces, nic)
}

// addLink makes a link, possibly without an address yet.
func (s *Simulator) addLink(nic *iface, kind allocType, sn *subnet, ip netip.Addr) *address {
	a := &address{id: s.db.next("ip"), kind: kind, subnet: sn, ip: ip, iface: nic, created: s.time.clock.Now().UTC()}
	nic.links = append(nic.links, a)
	s.db.addrs = append(s.db.addrs, a)
	return a
}

// hostKey returns a VM host's address in a unique form: without scheme, with port.
func hostKey(address string) string {
	address = strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	address = strings.TrimSuffix(address, "/")
	bare := strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	if _, err := netip.ParseAddr(bare); err == nil || !strings.Contains(address, ":") {
		return net.JoinHostPort(bare, "8443")
	}
	return address
}

func diskName(i int) string { return "sd" + string(rune('a'+i%26)) }

func orDefault(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

func httpTime(t time.Time) string { return t.Format("2006-01-02T15:04:05.000") }

// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/netip"
	"slices"
	"time"
)

// store is all data of MAAS. Slices are in the order of creation, which is the order in which MAAS lists.
type store struct {
	seq map[string]int

	users    []*user
	groups   []*group
	zones    []*zone
	pools    []*pool
	domains  []*domain
	vlans    []*vlan
	subnets  []*subnet
	ranges   []*ipRange
	reserved []*reservedIP
	tags     []*tag
	images   []*image
	scripts  []*script
	machines []*machine
	devices  []*machine
	hosts    []*vmHost
	addrs    []*address
	dns      []*dnsResource
	config   map[string]any
}

// next returns the next id of a kind of object, beginning with 1.
func (st *store) next(kind string) int {
	st.seq[kind]++
	return st.seq[kind]
}

type apiKey struct{ consumer, token, secret string }

type user struct {
	name, email string
	admin       bool
	keys        []apiKey
}

type zone struct {
	id                int
	name, description string
}

type pool struct {
	id                int
	name, description string
}

type domain struct {
	id            int
	name          string
	authoritative bool
	ttl           *int
	isDefault     bool
}

// untaggedName is the name of each fabric's untagged VLAN (get_name in maasserver/models/vlan.py).
const untaggedName = "untagged"

type vlan struct {
	id, vid, fabricID int
	fabric, name      string // A tagged VLAN has a name only if it was given one.
	mtu               int
	dhcpOn            bool
	space             string
	rack              string
}

type subnet struct {
	id                int
	name, description string
	cidr              netip.Prefix
	gateway           netip.Addr
	dnsServers        []string
	managed           bool
	vlan              *vlan
}

// Kinds of ipRange in MAAS.
const (
	rangeDynamic  = "dynamic"
	rangeReserved = "reserved"
)

type ipRange struct {
	id         int
	kind       string
	start, end netip.Addr
	subnet     *subnet
	comment    string
	user       *user
}

func (r *ipRange) contains(ip netip.Addr) bool { return !ip.Less(r.start) && !r.end.Less(ip) }

type tag struct {
	name, comment string
}

type image struct {
	id               int
	name             string // synced: "ubuntu/jammy"; uploaded: bare, from MAAS 3.8 on as it was sent
	architecture     string
	title, baseImage string
	uploaded         bool
	lastDeployed     time.Time
	sets             []*imageSet // the newest is the last
}

// imageSet is a version of an image. One that was replaced has no files.
type imageSet struct {
	version, label string
	files          []*imageFile
}

// imageFile is a file of a set. stored is shared by files with the same sha256: until 3.4 all of it, in the database; from
// 3.8 on the file on the disk, while synced, how much of it is there, belongs to each.
type imageFile struct {
	id                int
	set               *imageSet
	name, kind        string
	sha256            string
	size              int64
	stored            *storedFile
	synced            int64
	everyoneHasSynced bool // it came with the region's description
}

type storedFile struct{ content []byte }

// arch returns the main architecture, such as amd64.
func (im *image) arch() string { return firstPart(im.architecture, '/') }

// allocType is why an address exists, with MAAS's numbers.
type allocType int

const (
	allocAuto         allocType = 0
	allocSticky       allocType = 1
	allocUserReserved allocType = 4
	allocDHCP         allocType = 5
	allocDiscovered   allocType = 6
)

var allocTypeNames = map[allocType]string{
	allocAuto: "Automatic", allocSticky: "Sticky", allocUserReserved: "User reserved", allocDHCP: "DHCP",
	allocDiscovered: "Discovered",
}

// address is MAAS's StaticIPAddress: an address in use, and, if it belongs to an interface, that interface's link. A
// link without an address (AUTO before it is claimed, LINK_UP) has no ip.
type address struct {
	id      int
	ip      netip.Addr
	kind    allocType
	subnet  *subnet
	user    *user
	iface   *iface
	created time.Time
}

// mode returns the link's mode as interfaces show it.
func (a *address) mode() string {
	switch {
	case a.kind == allocAuto:
		return "auto"
	case a.kind == allocDHCP:
		return "dhcp"
	case a.kind == allocSticky && a.ip.IsValid():
		return "static"
	default:
		return "link_up"
	}
}

type iface struct {
	id      int
	name    string
	kind    string
	mac     string
	enabled bool
	vlan    *vlan
	links   []*address
	// leased is the address from DHCP, shown as "discovered".
	leased  *address
	tags    []string
	machine *machine
	ports   []string // a bridge's, a bond's or a VLAN's
	mtu     int      // 0: that of its VLAN
	params  object   // a bond's or a bridge's
	// acquired: found on the deployed machine. MAAS deletes it when the machine is released.
	acquired bool
}

type disk struct {
	id          int
	name        string
	size        int64 // bytes
	blockSize   int   // bytes
	model       string
	serial      string
	idPath      string
	storagePool string
	tags        []string
	data        string // what a tester wrote, until it is lost
}

// dnsResource is a name with addresses in a domain.
type dnsResource struct {
	id     int
	name   string
	domain *domain
	ttl    *int
	addrs  []*address
}

func (d *dnsResource) fqdn() string {
	if d.name == "@" {
		return d.domain.name
	}
	return d.name + "." + d.domain.name
}

// machine is MAAS's row of a machine and, in the last fields, the real machine.
type machine struct {
	id          int
	systemID    string
	hostname    string
	domain      *domain
	description string

	status, previous status
	statusMessage    string
	errorDescription string
	owner            *user
	agentName        string
	ownerData        map[string]string
	locked           bool
	isDPU            bool
	netboot          bool

	powerState  string
	powerType   string
	powerParams map[string]string

	architecture     string
	cpuCount         int
	memory           int // MiB
	disks            []*disk
	storageExtra     *StorageExtra
	unlisted         []*disk // those that MAAS does not know any more
	ifaces           []*iface
	zone             *zone
	pool             *pool
	tags             []*tag
	osystem, series  string
	hweKernel        string
	minHWEKernel     string
	ephemeral        bool
	hardware         map[string]string // what commissioning found, by hardwareKeys
	userData         []byte
	nodeKey          apiKey // see keyOf
	gatewayLink      *address
	commissioned     bool // it passed commissioning: a release ends in Ready, not New
	storage          storage
	bootMethod       string // "" until it is commissioned
	commissionResult int
	installResult    int
	commissionStatus int
	tests            []*scriptSet // of hardware tests, the oldest first
	testSet          *scriptSet   // the last one that was begun
	toTest           bool         // tests follow its commissioning

	host     *vmHost  // the VM host of a VM
	parent   *machine // the machine of the VM host that a VM had before the upgrade to a MAAS without
	vm       string   // its name there
	vmID     int
	dynamic  bool // composed by allocate: release deletes it
	device   bool // a device: MAAS does not manage it
	hostOnly bool // made by registering a VM host; deleted with it

	created  time.Time
	hungTo   time.Duration          // until when its BMC responds to nothing, in the region's time
	running  bool                   // really on, whatever MAAS's view is
	system   []byte                 // the user data with which its system was deployed; MAAS may have forgotten it
	erased   string                 // how its disks were erased since an image was written to them, or ""
	epoch    int                    // incremented by each new operation; a timer of an older epoch does nothing
	aborting int                    // the epoch in which its operation is aborted, or 0
	boots    int                    // how often it was switched on
	failing  map[string]string      // operations that must fail next, with MAAS's message
	outcomes map[string]TestOutcome // how testing scripts end on it, by their names
	gone     bool
	polling  bool // its power is being read from its host
}

func (m *machine) fqdn() string { return m.hostname + "." + m.domain.name }

// bootIface returns the boot interface.
func (m *machine) bootIface() *iface {
	if len(m.ifaces) == 0 {
		return nil
	}
	return m.ifaces[0]
}

// isVM reports whether the machine is a VM of a VM host, or was one before the upgrade to a MAAS without.
func (m *machine) isVM() bool {
	return m.host != nil || m.powerType == lxdDriver && m.powerParams[instanceName] != ""
}

// addresses returns ip_addresses of the API: those of all links, in the order of the interfaces.
func (m *machine) addresses() []netip.Addr {
	var out []netip.Addr
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			if link.ip.IsValid() && !slices.Contains(out, link.ip) {
				out = append(out, link.ip)
			}
		}
		if nic.leased != nil && !slices.Contains(out, nic.leased.ip) {
			out = append(out, nic.leased.ip)
		}
	}
	return out
}

// interfaceNamed returns the interface of a name, or nil.
func (m *machine) interfaceNamed(name string) *iface {
	at := slices.IndexFunc(m.ifaces, func(nic *iface) bool { return nic.name == name })
	if at < 0 {
		return nil
	}
	return m.ifaces[at]
}

// parents returns the interfaces that an interface contains.
func (nic *iface) parents() (out []*iface) {
	for _, name := range nic.ports {
		if parent := nic.machine.interfaceNamed(name); parent != nil {
			out = append(out, parent)
		}
	}
	return out
}

// children returns the bonds, bridges and VLANs on an interface.
func (nic *iface) children() (out []*iface) {
	for _, other := range nic.machine.ifaces {
		if slices.Contains(other.ports, nic.name) {
			out = append(out, other)
		}
	}
	return out
}

// effectiveMTU is get_effective_mtu of models/interface.py: no less than that of the interfaces on it.
func (nic *iface) effectiveMTU() int {
	mtu := 1500
	if nic.mtu > 0 {
		mtu = nic.mtu
	} else if nic.vlan != nil {
		mtu = nic.vlan.mtu
	}
	for _, child := range nic.children() {
		mtu = max(mtu, child.effectiveMTU())
	}
	return mtu
}

func (m *machine) hasTag(name string) bool {
	return slices.ContainsFunc(m.tags, func(t *tag) bool { return t.name == name })
}

// vmHost is MAAS's row of a VM host, as of the last refresh.
type vmHost struct {
	id                      int
	name                    string
	kind                    string // "lxd"
	version                 string
	architectures           []string
	params                  map[string]string
	zone                    *zone
	pool                    *pool
	tags                    []string
	cpuRatio, memRatio      float64
	machine                 *machine
	totalCores, totalMemory int // memory MiB
	usedCores, usedMemory   int
	storage                 []storagePool
	defaultPool             string
	networks                []HostNetwork // of a real host
	foreign                 []vmFacts     // VMs of other projects
	hv                      hypervisor
	known                   bool // cores and memory have arrived
	serial                  bool
	busyUntil               time.Duration // in the region's time, on a serial host
}

type storagePool struct {
	id, name, kind, path string
	total, used          int64 // bytes
}

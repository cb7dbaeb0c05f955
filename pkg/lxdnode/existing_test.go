// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// node is a prepared daemon that the cases of a test share, each with objects of its own names.
type node struct {
	*Node
	client lxd.InstanceServer
	daemon *lxdbed.Daemon
}

func startNode(t *testing.T) *node {
	t.Helper()
	d := lxdtest.Start(t, lxdbed.Options{})
	return &node{connectNode(t, d.Socket()), lxdtest.Connect(t, d.Socket()), d}
}

func TestWhatIsThereIsUsedOrReportedAndNeverChanged(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for name, test := range map[string]func(*testing.T, *node){
		"a pool of the driver keeps its size":            testPoolKeepsSize,
		"a pool of another driver is an error":           testPoolOfAnotherDriver,
		"a driver that LXD lacks is an error":            testMissingDriver,
		"a pool larger than the disk is an error":        testPoolLargerThanTheDisk,
		"a bridge that is not there is an error":         testMissingBridge,
		"a bridge is made where that was asked for":      testBridgeOnDemand,
		"something else than a bridge is an error":       testNoBridge,
		"a bridge that is down is an error":              testBridgeDown,
		"a bridge without a port is an error":            testBridgeWithoutPort,
		"a project and a profile are used":               testProjectAndProfileAreUsed,
		"a project without profiles of its own is error": testProjectWithoutProfiles,
		"a project that is restricted too far is error":  testProjectRestrictedTooFar,
		"a profile with a disk is an error":              testProfileWithDisk,
		"the project default is used":                    testProjectDefault,
	} {
		t.Run(name, func(t *testing.T) {
			before := inventory(t, n.client)
			t.Cleanup(func() {
				if _, set := before["server"].(map[string]any)[listenKey]; !set {
					delete(before, "server")
				}
				wantKept(t, before, inventory(t, n.client))
			})
			test(t, n)
		})
	}
}

// wantPermanent prepares and wants one step to fail for good, and the others to be done or left out.
func (n *node) wantPermanent(t *testing.T, c Config, step string, skipped ...string) *Error {
	t.Helper()
	for _, run := range []func() ([]Check, error){
		func() ([]Check, error) { return n.Inspect(t.Context(), c) },
		func() ([]Check, error) { return n.Prepare(t.Context(), c) },
	} {
		report, err := run()
		e := stepError(t, err, step)
		if !e.Permanent || !Permanent(err) || e.Remedy == "" {
			t.Errorf("want a permanent error with a remedy, got %#v", e)
		}
		for _, check := range report {
			if failed := check.Name == step; failed != (check.State == Failed) {
				t.Errorf("the check %+v is unexpected", check)
			}
			if check.Name == step && (check.Found != e.Problem || check.Remedy != e.Remedy) {
				t.Errorf("the check %+v differs from the error %v", check, e)
			}
		}
		if got, want := len(report), len(steps())-len(skipped); got != want {
			t.Errorf("%d checks, want %d: %+v", got, want, report)
		}
	}
	_, err := n.Prepare(t.Context(), c)
	return stepError(t, err, step)
}

func (n *node) makePool(t *testing.T, name, driver string, config map[string]string) {
	t.Helper()
	err := n.client.CreateStoragePool(api.StoragePoolsPost{
		Name: name, Driver: driver, StoragePoolPut: api.StoragePoolPut{Config: config, Description: "an operator's"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testPoolKeepsSize(t *testing.T, n *node) {
	config := named("size")
	config.StorageBackend, config.StorageSizeGB = "btrfs", 3
	n.makePool(t, config.StoragePool, "btrfs", map[string]string{"size": "2GB"})
	report, err := n.Prepare(t.Context(), config)
	if err != nil || states(report)[StepPool] != OK {
		t.Errorf("got %+v, %v", report, err)
	}
	config.StorageSizeGB = 1
	if report, err = n.Prepare(t.Context(), config); err != nil || states(report)[StepPool] != OK {
		t.Errorf("got %+v, %v", report, err)
	}
}

func testPoolOfAnotherDriver(t *testing.T, n *node) {
	config := named("driver")
	n.makePool(t, config.StoragePool, "dir", nil)
	config.StorageBackend, config.StorageSizeGB = "btrfs", 2
	e := n.wantPermanent(t, config, StepPool)
	wantMentioned(t, e.Problem, config.StoragePool, "dir", "btrfs")
	wantMentioned(t, e.Remedy, SettingStorageBackend, SettingStoragePool)
}

func testMissingDriver(t *testing.T, n *node) {
	server, _, err := n.client.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	config := named("lacks")
	config.StorageSizeGB = 2
	for _, driver := range []string{"zfs", "lvm"} {
		if config.StorageBackend = driver; !slices.Contains(storageDrivers(server), driver) {
			wantMentioned(t, n.wantPermanent(t, config, StepPool).Remedy, driver, SettingStorageBackend)
			return
		}
	}
	t.Skip("LXD has all drivers here")
}

func testPoolLargerThanTheDisk(t *testing.T, n *node) {
	config := named("larger")
	config.StorageBackend, config.StorageSizeGB = "btrfs", 3_000_000
	e := n.wantPermanent(t, config, StepPool)
	wantMentioned(t, e.Problem, "3000000 GB", "GB free")
	wantMentioned(t, e.Remedy, SettingStorageSize, "storageSize")
	if _, _, err := n.client.GetStoragePool(config.StoragePool); !notFound(err) {
		t.Errorf("the pool: %v", err)
	}
	// An existing one is used, whatever the setting is.
	n.makePool(t, config.StoragePool, "btrfs", map[string]string{"size": "2GB"})
	if report, err := n.Prepare(t.Context(), config); err != nil || states(report)[StepPool] != OK {
		t.Errorf("got %+v, %v", report, err)
	}
}

func testMissingBridge(t *testing.T, n *node) {
	config := named("missing")
	config.NetworkBridge = "br-none"
	e := n.wantPermanent(t, config, StepBridge)
	wantMentioned(t, e.Problem, "br-none", "br0")
	wantMentioned(t, e.Remedy, SettingNetworkBridge, SettingCreateBridge)
}

func testBridgeOnDemand(t *testing.T, n *node) {
	config := named("bridge")
	config.NetworkBridge, config.CreateBridge = "br-demand", true
	report, err := n.Inspect(t.Context(), config)
	if err != nil || states(report)[StepBridge] != Missing {
		t.Fatalf("got %+v, %v", report, err)
	}
	if report, err = n.Prepare(t.Context(), config); err != nil || states(report)[StepBridge] != Changed {
		t.Fatalf("got %+v, %v", report, err)
	}
	network, _, err := n.client.GetNetwork("br-demand")
	if err != nil {
		t.Fatal(err)
	}
	if !network.Managed || network.Type != "bridge" {
		t.Errorf("the network is %+v", network)
	}
	for key, want := range map[string]string{"dns.mode": "none", "ipv4.dhcp": "false", "ipv6.dhcp": "false"} {
		if got := network.Config[key]; got != want {
			t.Errorf("%s=%q, want %q", key, got, want)
		}
	}
	if report, err = n.Prepare(t.Context(), config); err != nil || states(report)[StepBridge] != OK {
		t.Errorf("the second time: %+v, %v", report, err)
	}
	// LXD's own bridge is as good without CREATE_BRIDGE.
	config.CreateBridge = false
	if report, err = n.Prepare(t.Context(), config); err != nil || states(report)[StepBridge] != OK {
		t.Errorf("without CREATE_BRIDGE: %+v, %v", report, err)
	}
}

func testNoBridge(t *testing.T, n *node) {
	config := named("lo")
	config.NetworkBridge, config.CreateBridge = "lo", true
	wantMentioned(t, n.wantPermanent(t, config, StepBridge).Problem, "lo", "loopback")
}

func testBridgeDown(t *testing.T, n *node) {
	config := named("down")
	// A bridge of LXD without attached devices has an address and is up; only the kernel's link state is down.
	proxied := startProxy(t, n.socket)
	proxied.set(func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/1.0/networks/br0/state" {
				lxd.ServeHTTP(w, r)
				return
			}
			rewrite(lxd, w, r, func(status int, body map[string]any) int {
				body["metadata"].(map[string]any)["state"] = "down"
				return status
			})
		})
	})
	_, err := (&Node{socket: proxied.socket}).Prepare(t.Context(), config)
	if e := stepError(t, err, StepBridge); e.Permanent || e.Remedy == "" {
		t.Errorf("got %#v", e)
	}
}

func testBridgeWithoutPort(t *testing.T, n *node) {
	config := named("lone")
	config.NetworkBridge = "br-lone"
	ip(t, n.daemon, "link add br-lone type bridge")
	ip(t, n.daemon, "link set br-lone up")
	e := n.wantPermanent(t, config, StepBridge)
	wantMentioned(t, e.Problem, "br-lone", "port")
	wantMentioned(t, e.Remedy, "create-bridge", SettingNetworkBridge)

	ip(t, n.daemon, "link add port0 type veth peer name network0")
	ip(t, n.daemon, "link set port0 master br-lone")
	if report, err := n.Prepare(t.Context(), config); err != nil || states(report)[StepBridge] != OK {
		t.Errorf("with a port: %+v, %v", report, err)
	}
}

func testProjectAndProfileAreUsed(t *testing.T, n *node) {
	config := named("used")
	err := n.client.CreateProject(api.ProjectsPost{Name: config.Project, ProjectPut: api.ProjectPut{
		Description: "an operator's", Config: map[string]string{"features.profiles": "true", "limits.instances": "7"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	err = n.client.UseProject(config.Project).CreateProfile(api.ProfilesPost{Name: profileName, ProfilePut: api.ProfilePut{
		Description: "an operator's", Config: map[string]string{"limits.cpu": "2"},
		Devices: map[string]map[string]string{"eth0": {"type": "nic", "nictype": "bridged", "parent": "br0"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	before := inventory(t, n.client)
	report, err := n.Prepare(t.Context(), config)
	if err != nil || states(report)[StepProject] != OK || states(report)[StepProfile] != OK {
		t.Errorf("got %+v, %v", report, err)
	}
	delete(before, "server")
	wantKept(t, before, inventory(t, n.client))
}

func testProfileWithDisk(t *testing.T, n *node) {
	config := named("disk")
	if report, err := n.Prepare(t.Context(), config); err != nil || states(report)[StepProfile] != Changed {
		t.Fatalf("got %+v, %v", report, err)
	}
	root := map[string]string{"type": "disk", "path": "/", "pool": config.StoragePool}
	for _, c := range []struct {
		name    string
		devices map[string]map[string]string
		refused string
	}{
		{"a share", map[string]map[string]string{"share": {"type": "disk", "source": "/tmp", "path": "/mnt"}}, "share"},
		{"a root disk of another name", map[string]map[string]string{"main": root}, "main"},
		{"root and a NIC", map[string]map[string]string{"root": root, "eth0": {"type": "nic", "nictype": "bridged", "parent": "br0"}}, ""},
	} {
		project := n.client.UseProject(config.Project)
		if err := project.UpdateProfile(profileName, api.ProfilePut{Devices: c.devices}, ""); err != nil {
			t.Fatal(err)
		}
		if c.refused == "" {
			if _, err := n.Prepare(t.Context(), config); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		e := n.wantPermanent(t, config, StepProfile)
		wantMentioned(t, e.Problem, c.refused, profileName, config.Project)
		wantMentioned(t, e.Remedy, "lxc profile device remove")
	}
}

func testProjectWithoutProfiles(t *testing.T, n *node) {
	config := named("noprofiles")
	err := n.client.CreateProject(api.ProjectsPost{Name: config.Project, ProjectPut: api.ProjectPut{
		Config: map[string]string{"features.profiles": "false", "features.images": "false"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := n.wantPermanent(t, config, StepProject, StepProfile)
	wantMentioned(t, e.Remedy, config.Project, SettingProject)
	if _, _, err := n.client.GetProfile(profileName); !notFound(err) {
		t.Errorf("a profile was made in the default project: %v", err)
	}
}

func testProjectRestrictedTooFar(t *testing.T, n *node) {
	for _, c := range []struct {
		name    string
		config  map[string]string
		missing []string
	}{
		{"nothing", nil, []string{"restricted.devices.nic=allow", "restricted.virtual-machines.lowlevel=allow"}},
		{"interfaces", map[string]string{"restricted.devices.nic": "allow"}, []string{"restricted.virtual-machines.lowlevel=allow"}},
		{"lowlevel", map[string]string{"restricted.virtual-machines.lowlevel": "allow"}, []string{"restricted.devices.nic=allow"}},
		{"both", map[string]string{
			"restricted.devices.nic": "allow", "restricted.virtual-machines.lowlevel": "allow", "restricted.devices.gpu": "allow",
		}, nil},
	} {
		config := named("allows-" + c.name)
		put := api.ProjectPut{Config: map[string]string{"features.profiles": "true", "restricted": "true"}}
		maps.Copy(put.Config, c.config)
		if err := n.client.CreateProject(api.ProjectsPost{Name: config.Project, ProjectPut: put}); err != nil {
			t.Fatal(err)
		}
		before := n.projectConfig(t, config.Project)
		if c.missing == nil {
			if report, err := n.Prepare(t.Context(), config); err != nil || states(report)[StepProject] != OK {
				t.Errorf("one that allows %s: %+v, %v", c.name, report, err)
			}
		} else {
			wantMentioned(t, n.wantPermanent(t, config, StepProject, StepProfile).Remedy, append(c.missing, config.Project)...)
		}
		if diff := cmp.Diff(before, n.projectConfig(t, config.Project)); diff != "" {
			t.Errorf("one that allows %s was changed (-before +after):\n%s", c.name, diff)
		}
	}
}

func (n *node) projectConfig(t *testing.T, name string) map[string]string {
	t.Helper()
	project, _, err := n.client.GetProject(name)
	if err != nil {
		t.Fatal(err)
	}
	return project.Config
}

func testProjectDefault(t *testing.T, n *node) {
	config := named("default")
	config.Project = "default"
	// The other cases, in any order, find the default project as LXD made it.
	t.Cleanup(func() { _ = n.client.DeleteProfile(profileName) })
	report, err := n.Prepare(t.Context(), config)
	if err != nil || states(report)[StepProject] != OK || states(report)[StepProfile] != Changed {
		t.Errorf("got %+v, %v", report, err)
	}
}

// listener is a node whose address the cases of a test change.
type listener struct {
	*node
	config Config
}

func startListener(t *testing.T) *listener {
	t.Helper()
	d := lxdtest.Start(t, lxdbed.Options{})
	return &listener{&node{connectNode(t, d.Socket()), lxdtest.Connect(t, d.Socket()), d}, named("listen")}
}

// prepare wants the address's check in a state.
func (l *listener) prepare(t *testing.T, address string, want State) {
	t.Helper()
	l.config.ListenAddress = address
	report, err := l.Prepare(t.Context(), l.config)
	if err != nil || states(report)[StepListen] != want {
		t.Fatalf("%s: %+v, %v", address, report, err)
	}
}

func (l *listener) refused(t *testing.T, n *Node, address string) *Error {
	t.Helper()
	l.config.ListenAddress = address
	_, err := n.Prepare(t.Context(), l.config)
	return stepError(t, err, StepListen)
}

// wantAt wants the address in LXD's configuration, settled, and LXD to be reached there. "" is none.
func (l *listener) wantAt(t *testing.T, address string) {
	t.Helper()
	now, err := readListen(lxdapi.Of(t.Context(), l.client, ""))
	if err != nil {
		t.Fatal(err)
	}
	if now.address != address || strings.HasPrefix(now.mark, tryingPrefix) || (address == "" && now.mark != "") {
		t.Errorf("LXD listens on %q (mark %q), want %q", now.address, now.mark, address)
	}
	if address == "" {
		return
	}
	conn, err := l.daemon.Dial(t.Context(), "tcp", strings.Replace(address, "[::]", "10.0.2.15", 1))
	if err != nil {
		t.Fatalf("LXD does not listen on %s: %v", address, err)
	}
	_ = conn.Close()
}

// taken makes LXD itself use a port, for its metrics; with "" it releases it.
func (l *listener) taken(t *testing.T, address string) {
	t.Helper()
	setConfig(t, l.client, "core.metrics_address", address)
}

func TestAddressThatLXDCannotListenOnIsExplainedAndUndone(t *testing.T) {
	t.Parallel()
	l := startListener(t)

	e := l.refused(t, l.Node, "203.0.113.9:8443")
	if !e.Permanent {
		t.Errorf("an address that the node lacks: %#v", e)
	}
	wantMentioned(t, e.Problem, "203.0.113.9", "10.0.2.15")
	l.wantAt(t, "")

	l.taken(t, "10.0.2.15:9443")
	for _, before := range []string{"", "10.0.2.15:8444"} { // it has none, or has one that was set here
		if before != "" {
			l.prepare(t, before, Changed)
		}
		if e = l.refused(t, l.Node, "10.0.2.15:9443"); e.Permanent {
			t.Errorf("a port that is taken: %#v", e)
		}
		wantMentioned(t, e.Problem, "10.0.2.15:9443")
		wantMentioned(t, e.Remedy, "9443", SettingListen)
		l.wantAt(t, before)
	}

	// The refusal gets lost. LXD 5.0 shows the address as configured all the same.
	between := startProxy(t, l.socket)
	change, _ := atWrite(1, true, cutAfter) // everything else is there already
	between.set(change)
	if e = l.refused(t, &Node{socket: between.socket}, "10.0.2.15:9443"); !unanswered(e) {
		t.Errorf("the refusal was to get lost: %#v", e)
	}
	report, err := l.Inspect(t.Context(), l.config)
	if err != nil || states(report)[StepListen] != Missing {
		t.Errorf("nobody knows whether LXD listens there, but: %+v, %v", report, err)
	}
	if e = l.refused(t, l.Node, "10.0.2.15:9443"); e.Permanent {
		t.Errorf("a port that is still taken: %#v", e)
	}
	l.wantAt(t, "10.0.2.15:8444")
	l.taken(t, "")
	l.prepare(t, "10.0.2.15:9443", Changed)
	l.wantAt(t, "10.0.2.15:9443")
	l.prepare(t, "10.0.2.15:9443", OK)
}

func TestAddressMovesWithTheSettingUnlessItIsAnOperators(t *testing.T) {
	t.Parallel()
	l := startListener(t)
	l.prepare(t, "", Changed)
	l.wantAt(t, anyListen)
	l.prepare(t, "10.0.2.15:8443", OK) // all addresses serve it
	l.wantAt(t, anyListen)
	l.prepare(t, "10.0.2.15:8444", Changed)
	l.wantAt(t, "10.0.2.15:8444")
	l.prepare(t, "", OK)

	setConfig(t, l.client, listenKey, "10.0.2.15:8445")
	l.prepare(t, "", OK)
	l.config.ListenAddress = "10.0.2.15:8444"
	wantMentioned(t, l.wantPermanent(t, l.config, StepListen).Problem, "10.0.2.15:8445")
	l.wantAt(t, "10.0.2.15:8445")
	setConfig(t, l.client, listenKey, "[::]:8444")
	l.prepare(t, "10.0.2.15:8444", OK)
	l.wantAt(t, "[::]:8444")
}

// setConfig sets a key of the server's configuration, or removes it.
func setConfig(t *testing.T, client lxd.InstanceServer, key, value string) {
	t.Helper()
	server, etag, err := client.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	put := server.Writable()
	put.Config[key] = value // empty removes it
	if err := client.UpdateServer(put, etag); err != nil {
		t.Fatal(err)
	}
}

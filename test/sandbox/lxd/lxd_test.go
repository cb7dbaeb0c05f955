// SPDX-License-Identifier: Apache-2.0

package lxd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// The test binary is also the program that dies with a daemon, selected by this variable.
const parentVariable = "LXD_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		d, err := lxd.Start(context.Background(), lxd.Options{})
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Dir())
		select {}
	}
	os.Exit(m.Run())
}

func connect(t *testing.T, d *lxd.Daemon) lxdclient.InstanceServer {
	t.Helper()
	return lxdtest.Connect(t, d.Socket())
}

// listen has a daemon serve its network.
func listen(t *testing.T, server lxdclient.InstanceServer, address string) {
	t.Helper()
	settings, etag, err := server.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	put := settings.Writable()
	put.Config["core.https_address"] = address
	if err := server.UpdateServer(put, etag); err != nil {
		t.Fatal(err)
	}
}

// fetch gets the server's settings through the node's network, with a client certificate.
func fetch(t *testing.T, d *lxd.Daemon, address string, keys tls.Certificate) string {
	t.Helper()
	transport := &http.Transport{
		DialContext: d.Dial,
		TLSClientConfig: &tls.Config{
			Certificates: []tls.Certificate{keys}, InsecureSkipVerify: true, // LXD's certificate is self-signed
		},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/1.0", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func newKeys(t *testing.T) tls.Certificate {
	t.Helper()
	certificate, key, err := shared.GenerateMemCert(true, shared.CertOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func trust(t *testing.T, server lxdclient.InstanceServer, keys tls.Certificate) {
	t.Helper()
	err := server.CreateCertificate(api.CertificatesPost{
		Name: "test", Type: api.CertificateTypeClient, Certificate: base64.StdEncoding.EncodeToString(keys.Certificate[0]),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestServesItsNodesNetwork(t *testing.T) {
	const address, mac = "10.20.30.40", "52:54:00:0a:0b:0c"
	d := lxdtest.Start(t, lxd.Options{Address: netip.MustParsePrefix(address + "/24"), MAC: mac})
	server := connect(t, d)
	listen(t, server, address+":8443")
	keys := newKeys(t)
	if got := fetch(t, d, address+":8443", keys); !strings.Contains(got, `"auth":"untrusted"`) {
		t.Errorf("without trust: %s", got)
	}
	trust(t, server, keys)
	if got := fetch(t, d, address+":8443", keys); !strings.Contains(got, `"auth":"trusted"`) {
		t.Errorf("with trust: %s", got)
	}
	for _, name := range []string{"br0", "eth0"} {
		state, err := server.GetNetworkState(name)
		if err != nil {
			t.Fatal(err)
		}
		if state.Hwaddr != mac || state.State != "up" {
			t.Errorf("%s has the MAC %s and is %s, want %s and up", name, state.Hwaddr, state.State, mac)
		}
	}
}

// As on a node of Kubernetes: LXD reports the node's ends, nothing behind them, and none that is named veth*.
func TestInterfacesOfPods(t *testing.T) {
	const mac = "ee:ee:ee:ee:ee:ee"
	d := lxdtest.Start(t, lxd.Options{Card: "enp1s0"})
	for _, i := range []lxd.Interface{
		{Name: "cni0", Bridge: true, Address: netip.MustParsePrefix("10.244.1.1/24")}, {Name: "veth1", In: "cni0"}, {Name: "cali1", MAC: mac},
	} {
		if err := d.AddInterface(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	server := connect(t, d)
	got := map[string]string{}
	listed, err := server.GetNetworks()
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range listed {
		got[network.Name] = network.Type
	}
	want := map[string]string{"lo": "loopback", "enp1s0": "unknown", "br0": "bridge", "cni0": "bridge", "cali1": "unknown"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("LXD's networks (-want +got):\n%s", diff)
	}
	if state, err := server.GetNetworkState("cni0"); err != nil || !slices.Equal(state.Bridge.UpperDevices, []string{"veth1"}) {
		t.Errorf("cni0 is %+v, %v", state, err)
	}
	if state, err := server.GetNetworkState("cali1"); err != nil || state.Hwaddr != mac {
		t.Errorf("cali1 is %+v, %v", state, err)
	}
	if err := d.RemoveInterface(t.Context(), "cali1"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.GetNetworkState("cali1"); !api.StatusErrorCheck(err, http.StatusNotFound) {
		t.Errorf("cali1 is there after its removal: %v", err)
	}
}

func makePool(t *testing.T, server lxdclient.InstanceServer) {
	t.Helper()
	pool := api.StoragePoolsPost{Name: "default", Driver: "btrfs", StoragePoolPut: api.StoragePoolPut{Config: map[string]string{"size": "2GiB"}}}
	if err := server.CreateStoragePool(pool); err != nil {
		t.Fatal(err)
	}
}

func makeProject(t *testing.T, server lxdclient.InstanceServer) lxdclient.InstanceServer {
	t.Helper()
	config := map[string]string{"features.images": "false", "features.profiles": "true", "features.storage.volumes": "false"}
	project := api.ProjectsPost{Name: "maas", ProjectPut: api.ProjectPut{Config: config}}
	if err := server.CreateProject(project); err != nil {
		t.Fatal(err)
	}
	return server.UseProject("maas")
}

// longestName is as long as the hostnames of VMs become.
var longestName = maas.Hostname(strings.Repeat("long", 20), "owner")

func makeMachine(t *testing.T, project lxdclient.InstanceServer) {
	t.Helper()
	operation, err := project.CreateInstance(api.InstancesPost{
		Name: longestName, Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: "none"},
		InstancePut: api.InstancePut{
			Config: map[string]string{"limits.cpu": "1", "limits.memory": "268435456", "security.secureboot": "false"},
			Devices: map[string]map[string]string{
				"root": {"type": "disk", "path": "/", "pool": "default", "size": "67108864"},
				"eth0": {"type": "nic", "name": "eth0", "nictype": "bridged", "parent": "br0", "boot.priority": "1"},
			},
		},
	})
	lxdtest.Finish(t, operation, err)
}

func setState(t *testing.T, project lxdclient.InstanceServer, action, want string) {
	t.Helper()
	operation, err := project.UpdateInstanceState(longestName, api.InstanceStatePut{Action: action, Force: true, Timeout: 30}, "")
	lxdtest.Finish(t, operation, err)
	expectState(t, project, want)
}

func expectState(t *testing.T, project lxdclient.InstanceServer, want string) {
	t.Helper()
	state, _, err := project.GetInstanceState(longestName)
	if err != nil {
		t.Fatal(err)
	}
	if state.Status != want {
		t.Errorf("the machine is %s, want %s", state.Status, want)
	}
}

// requireVMs skips a test where LXD can't run virtual machines.
func requireVMs(t *testing.T, server lxdclient.InstanceServer) {
	t.Helper()
	settings, _, err := server.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(settings.Environment.Driver, "qemu") {
		if os.Getenv(lxdtest.RequireVariable) != "" {
			t.Fatalf("no virtual machines here: the drivers are %q", settings.Environment.Driver)
		}
		t.Skipf("no virtual machines here: the drivers are %q", settings.Environment.Driver)
	}
}

func TestRunsVirtualMachines(t *testing.T) {
	d := lxdtest.Start(t, lxd.Options{})
	server := connect(t, d)
	requireVMs(t, server)
	makePool(t, server)
	project := makeProject(t, server)
	makeMachine(t, project)
	setState(t, project, "start", "Running")

	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if d.Running() {
		t.Error("the daemon runs after Kill")
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !d.Running() {
		t.Error("the daemon does not run after Restart")
	}
	project = connect(t, d).UseProject("maas")
	expectState(t, project, "Running")

	setState(t, project, "stop", "Stopped")
	operation, err := project.DeleteInstance(longestName)
	lxdtest.Finish(t, operation, err)
}

// servesConfigDrive reports whether a process serves the config drive of a VM of a daemon.
func servesConfigDrive(d *lxd.Daemon) bool {
	lists, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	return slices.ContainsFunc(lists, func(list string) bool {
		arguments, _ := os.ReadFile(list) // It may have ended.
		return bytes.Contains(arguments, []byte(d.Dir()+"/devices/"))
	})
}

func TestStartsAVMThatItWasStartingWhenItDied(t *testing.T) {
	d := lxdtest.Start(t, lxd.Options{})
	server := connect(t, d)
	requireVMs(t, server)
	makePool(t, server)
	project := makeProject(t, server)
	makeMachine(t, project)
	if _, err := project.UpdateInstanceState(longestName, api.InstanceStatePut{Action: "start", Timeout: -1}, ""); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return servesConfigDrive(d), nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	project = connect(t, d).UseProject("maas")
	state, _, err := project.GetInstanceState(longestName)
	if err != nil {
		t.Fatal(err)
	}
	if state.Status != "Running" { // else LXD was faster than its death
		setState(t, project, "start", "Running")
	}
	setState(t, project, "stop", "Stopped")
}

func TestKeepsWhatItHadWhilePoweredOff(t *testing.T) {
	d := lxdtest.Start(t, lxd.Options{})
	makePool(t, connect(t, d))
	makeProject(t, connect(t, d))
	listen(t, connect(t, d), "10.0.2.15:8443")
	if err := d.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if conn, err := d.Dial(t.Context(), "tcp", "10.0.2.15:8443"); err == nil {
		_ = conn.Close()
		t.Error("a node that is down answers")
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, _, err := connect(t, d).GetStoragePool("default")
	if err != nil {
		t.Fatal(err)
	}
	if pool.Status != "Created" {
		t.Errorf("the pool is %s", pool.Status)
	}
	if got := fetch(t, d, "10.0.2.15:8443", newKeys(t)); !strings.Contains(got, `"auth":"untrusted"`) {
		t.Errorf("the daemon responds %s", got)
	}
}

// TestSideBySide runs daemons with the same bridge, address and port, which only their certificates distinguish.
func TestSideBySide(t *testing.T) {
	seen := make(chan string, 3)
	t.Run("daemons", func(t *testing.T) {
		for i := range cap(seen) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				d := lxdtest.Start(t, lxd.Options{})
				server := connect(t, d)
				listen(t, server, "127.0.0.1:8443")
				settings, _, err := server.GetServer()
				if err != nil {
					t.Fatal(err)
				}
				seen <- settings.Environment.CertificateFingerprint
				if got := certificateOf(t, d); got != settings.Environment.Certificate {
					t.Errorf("another daemon answers: %s", got)
				}
			})
		}
	})
	close(seen)
	fingerprints := map[string]bool{}
	for fingerprint := range seen {
		fingerprints[fingerprint] = true
	}
	if len(fingerprints) != cap(seen) {
		t.Errorf("%d daemons, want %d", len(fingerprints), cap(seen))
	}
}

func certificateOf(t *testing.T, d *lxd.Daemon) string {
	t.Helper()
	conn, err := d.Dial(t.Context(), "tcp", "127.0.0.1:8443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var certificate *x509.Certificate
	secure := tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, // the test verifies it itself
		VerifyConnection: func(state tls.ConnectionState) error {
			certificate = state.PeerCertificates[0]
			return nil
		},
	})
	if err := secure.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
}

func TestStopLeavesNothing(t *testing.T) {
	lxdtest.Require(t)
	d, err := lxd.Start(t.Context(), lxd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	makePool(t, connect(t, d))
	for range 2 {
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	expectNothing(t, filepath.Dir(d.Dir()))
	if _, err := os.Stat(filepath.Dir(d.Dir())); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	if _, err := d.Dial(t.Context(), "tcp", "127.0.0.1:8443"); err == nil {
		t.Error("the node answers")
	}
}

func TestDiesWithItsProgram(t *testing.T) {
	lxdtest.Require(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(t.Context(), program)
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	if _, err := fmt.Fscan(io.LimitReader(out, 1000), &dir); err != nil {
		t.Fatal(err)
	}
	base := filepath.Dir(dir)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if len(running(t, base)) == 0 {
		t.Error("nothing runs before")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	expectNothing(t, base)
	lxdtest.Start(t, lxd.Options{})
	if _, err := os.Stat(base); !os.IsNotExist(err) {
		t.Errorf("the directory is left when the next daemon has started: %v", err)
	}
}

// expectNothing waits until no process of a daemon and none of its mounts and loop devices is left.
func expectNothing(t *testing.T, base string) {
	t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		left = running(t, base)
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			return false, err
		}
		if bytes.Contains(mounts, []byte(base)) {
			left = append(left, string(mounts))
		}
		return len(left) == 0, nil
	})
	if err != nil {
		t.Errorf("left behind: %v: %s", err, left)
	}
}

// running are the command lines and environments that name a daemon's directory.
func running(t *testing.T, base string) (found []string) {
	t.Helper()
	for _, name := range []string{"cmdline", "environ"} {
		files, err := filepath.Glob("/proc/[0-9]*/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && bytes.Contains(text, []byte(base)) {
				found = append(found, string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
			}
		}
	}
	return found
}

func TestDialHonoursItsContext(t *testing.T) {
	d := lxdtest.Start(t, lxd.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := d.Dial(ctx, "tcp", "10.0.2.77:8443"); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, %v, want %v", conn, err, context.Canceled)
	}
}

// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const (
	image  = "custom/debian"
	vmName = "cp-0-owner"
	mark   = "capmaas/owner/cp-0"
	port   = "8080"

	bootTimeout = 30 * time.Minute
	askTimeout  = time.Minute
)

var vmAddress = netip.MustParseAddr("10.77.0.40")

// userData writes a file, and serves it with what the VM is.
const userData = `#cloud-config
write_files:
- path: /srv/answer
  content: %q
- path: /etc/systemd/system/answer.service
  content: |
    [Service]
    ExecStart=/usr/bin/python3 -m http.server --directory /srv ` + port + `
- path: /etc/systemd/system/times.service
  content: |
    [Service]
    ExecStart=/bin/sh /srv/times.sh
- path: /srv/times.sh
  content: |
    until systemd-analyze time >/srv/new; do sleep 1; done
    cloud-init analyze show | grep -E "Finished|Total" >>/srv/new
    mv /srv/new /srv/times
runcmd:
- hostname >/srv/hostname
- systemctl start --no-block answer.service times.service
`

// A VM boots an image of Debian that was uploaded as users do: cloud-init applies the network configuration and the user
// data that the VM was made with, and the address that MAAS has for it answers with what they wrote.
func TestAVMBootsAnImage(t *testing.T) {
	b := newBed(t)
	stage := stages(t)
	if err := b.host.UploadDisk(t.Context(), image, filepath.Join("..", "..", "bin", "node", "disk.qcow2")); err != nil {
		t.Fatal(err)
	}
	stage("upload")
	secret := rand.Text()
	vm := b.compose(t, fmt.Sprintf(userData, secret))
	stage("placement and clone")
	b.watch(t, vm.Hostname)
	if err := b.Start(t.Context(), maas.UnrecordedVM("a test"), vm); err != nil {
		t.Fatal(err)
	}
	stage("start")
	if got := b.ask(t, "answer"); got != secret {
		t.Errorf("the VM answers %q, want %q", got, secret)
	}
	stage("answer")
	if got := strings.TrimSpace(b.ask(t, "hostname")); got != vmName {
		t.Errorf("the VM calls itself %q, want %q", got, vmName)
	}
	device, err := b.client.GetDevice(t.Context(), vm.SystemID)
	if err != nil || len(device.IPAddresses) != 1 || device.IPAddresses[0] != vmAddress.String() {
		t.Errorf("MAAS has the device %+v, %v", device, err)
	}
	t.Logf("The VM's own times: %s", b.ask(t, "times"))
	b.remove(t, vm)
}

// stages returns what logs how long each stage took.
func stages(t *testing.T) func(name string) {
	began := time.Now()
	return func(name string) {
		t.Helper()
		t.Logf("%-20s %6.2f s", name, time.Since(began).Seconds())
		began = time.Now()
	}
}

func (b *bed) compose(t *testing.T, userData string) lxd.VM {
	t.Helper()
	spec := lxd.VMSpec{
		Hostname: vmName, Marks: lxdhost.Marks{Owner: "owner", Machine: vmName}, Namespace: namespace,
		Resources: lxd.Resources{Cores: 1, Memory: 1024, Disk: 2}, Image: image, UserData: userData, Address: vmAddress,
		AgentName: mark, Annotations: map[string]string{"capmaas-owner": "owner"},
	}
	hosts, err := b.GetAvailableLXDHosts(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	host, err := b.SelectOptimalHost(hosts, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	var vm lxd.VM
	eventually.True(t, "LXD has made the VM, or refused it", func() bool { // As the manager does.
		vm, err = b.ComposeVM(t.Context(), permit, host, spec)
		return !errors.Is(err, maas.Unavailable)
	}, func() any { return err })
	if err != nil {
		t.Fatal(err)
	}
	vm.HostRef = lxd.HostRef(host)
	return vm
}

// ask returns what the VM serves under a name, as soon as it does.
func (b *bed) ask(t *testing.T, name string) string {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return b.host.Daemon.Dial(ctx, network, address)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: askTimeout}
	url := "http://" + net.JoinHostPort(vmAddress.String(), port) + "/" + name
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	var body []byte
	err := eventually.Wait(ctx, url, func() (_ bool, _ string, err error) {
		body, err = get(ctx, client, url)
		return err == nil, fmt.Sprint(err), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the VM answers %s", response.Status)
	}
	return io.ReadAll(response.Body)
}

// remove deletes a VM that runs, and its device.
func (b *bed) remove(t *testing.T, vm lxd.VM) {
	t.Helper()
	if err := b.DeleteVM(t.Context(), maas.UnrecordedVM("a test"), vm); err != nil {
		t.Fatal(err)
	}
	if found, err := b.Find(t.Context(), vm); err != nil || found.State != lxd.Gone {
		t.Errorf("the VM is %+v, %v", found, err)
	}
	if err := b.Forget(t.Context(), permit, vm.Machine, mark); err != nil {
		t.Error(err)
	}
}

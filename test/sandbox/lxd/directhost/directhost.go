// SPDX-License-Identifier: Apache-2.0

// Package directhost gives tests direct hosts: real LXDs that are prepared for VMs of ours.
package directhost

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

const (
	// Project is the LXD project of the VMs, unless In names another.
	Project = lxdnode.DefaultProject
	// Bridge is the bridge of the VMs.
	Bridge = "br0"

	// listen is in the node's own network.
	listen = "127.0.0.1:8443"
	// user is the name of the client certificate.
	user = "capmaas"
)

// Host is a real LXD that is prepared for VMs of ours, and reached through a port of this computer.
type Host struct {
	// Address of LXD's HTTPS API, and Keys that it trusts for the project.
	Address string
	Keys    lxdnode.Keys
	Daemon  *lxd.Daemon

	project     string
	subnet      string         // of the LXD's node, or ""
	storage     lxdnode.Config // of that alone
	t           testing.TB
	client      lxdclient.InstanceServer // by the socket, in the project
	certificate string                   // as clients see it
	own         string                   // LXD's
	// proxied is what proxies before the LXD have, whichever project they lead to.
	proxied lxdtest.Identity
}

// Start runs and prepares an LXD until the test ends, or skips the test as lxdtest.Require does.
func Start(t testing.TB) *Host {
	t.Helper()
	return StartAt(t, netip.Prefix{})
}

// StartAt is Start with the address of the LXD's node, on Bridge, in a subnet that MAAS knows: only there VMs are made.
func StartAt(t testing.TB, address netip.Prefix) *Host {
	t.Helper()
	return StartWith(t, Options{LXD: lxd.Options{Address: address}})
}

// Options of StartWith. All have defaults.
type Options struct {
	// LXD are those of the daemon, but for its bridge, which is Bridge.
	LXD lxd.Options
	// PoolGB is the size of the storage pool, of btrfs, which takes only what is written, and may be larger than what
	// this computer has. Default: a directory.
	PoolGB int
}

// StartWith is Start with options.
func StartWith(t testing.TB, o Options) *Host {
	t.Helper()
	o.LXD.Bridge = Bridge
	daemon := lxdtest.Start(t, o.LXD)
	h := &Host{t: t, Daemon: daemon, storage: storage(t, daemon, o.PoolGB), proxied: lxdtest.NewIdentity(t)}
	if o.LXD.Address.IsValid() {
		h.subnet = o.LXD.Address.Masked().String()
	}
	h = h.In(Project)
	server, _, err := h.client.GetServer()
	h.must(err)
	h.certificate, h.own = server.Environment.Certificate, server.Environment.Certificate
	h.Address = lxdtest.Forward(t, daemon, listen)
	return h
}

// storage returns what the storage pool is, and makes one that has a size.
func storage(t testing.TB, daemon *lxd.Daemon, sizeGB int) lxdnode.Config {
	t.Helper()
	if sizeGB == 0 {
		return lxdnode.Config{StorageBackend: "dir"}
	}
	config := lxdnode.Config{StorageBackend: "btrfs", StorageSizeGB: sizeGB}
	pool := api.StoragePoolsPost{Name: lxdnode.DefaultStoragePool, Driver: config.StorageBackend}
	pool.Config = map[string]string{"size": fmt.Sprintf("%dGB", sizeGB)}
	if err := lxdtest.Connect(t, daemon.Socket()).CreateStoragePool(pool); err != nil {
		t.Fatal(err)
	}
	return config
}

// In returns the host with another project of the LXD, which has keys of its own.
func (h *Host) In(project string) *Host {
	h.t.Helper()
	node, err := lxdnode.Connect(h.t.Context(), h.Daemon.Socket())
	h.must(err)
	config := h.storage
	config.StoragePool, config.NetworkBridge = lxdnode.DefaultStoragePool, Bridge
	config.Project, config.ListenAddress = project, listen
	_, err = node.Prepare(h.t.Context(), config)
	h.must(err)
	other := *h
	other.project = project
	other.Keys, err = lxdnode.NewKeys(user)
	h.must(err)
	_, err = node.Trust(h.t.Context(), user+"-"+project, project, other.Keys.Certificate)
	h.must(err)
	other.client = lxdtest.Connect(h.t, h.Daemon.Socket()).UseProject(project)
	return &other
}

func (h *Host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// Behind returns the host as it is reached through a proxy with something in between, until the test ends: for LXDHosts
// that lead there, and for the MAAS that switches their VMs.
func (h *Host) Behind(t testing.TB, between lxdtest.Middleware) *Host {
	t.Helper()
	keys, err := tls.X509KeyPair(h.Keys.Certificate, h.Keys.Key)
	if err != nil {
		t.Fatal(err)
	}
	onward := &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{keys}, InsecureSkipVerify: true}, // LXD's is self-signed
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return h.Daemon.Dial(ctx, "tcp", listen) },
	}
	proxy := lxdtest.StartProxy(t, onward, listen, h.proxied, between)
	behind := *h
	behind.Address, behind.certificate = proxy.Address, string(proxy.Certificate)
	return &behind
}

// VMs are those in LXD, by name, with their state.
func (h *Host) VMs(t testing.TB) map[string]string {
	t.Helper()
	list, err := h.client.GetInstances(api.InstanceTypeVM)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, one := range list {
		states[one.Name] = one.Status
	}
	return states
}

// Objects are an LXDHost of the LXD in a zone, and the Secret that it names.
func (h *Host) Objects(key client.ObjectKey, zone string) (*infrav1.LXDHost, *corev1.Secret) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-lxd"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: h.Keys.Certificate, corev1.TLSPrivateKeyKey: h.Keys.Key},
	}
	return &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: infrav1.LXDHostSpec{
			Address: h.Address, ServerCertificate: h.certificate, Zone: zone, Project: h.project, NetworkBridge: Bridge,
			CredentialsRef: &infrav1.LocalObjectReference{Name: secret.Name}, Subnet: h.subnet,
		},
	}, secret
}

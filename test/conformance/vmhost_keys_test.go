// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"
)

// newKeyPair is a client certificate with its key, PEM.
func newKeyPair(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

// MAAS's form strips white space from both ends, and so the last newline.
func TestVMHostKeepsTheGivenCertificateWithoutItsLastNewline(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		host := m.newUnreachableHost(t, "certificate", certificate, "key", key)
		m.checkKeys(t, host, certificate, key)
	})
}

func (m *maas) checkKeys(t *testing.T, host object, certificate, key string) {
	t.Helper()
	got := m.get(t, vmHostPath(host), "op", "parameters").object(t)
	if got.str("certificate") != strings.TrimSpace(certificate) {
		t.Errorf("certificate %q, want %q without its last newline", got.str("certificate"), certificate)
	}
	if got.str("key") != strings.TrimSpace(key) {
		t.Error("the key is another than the one given, without its last newline")
	}
}

// MAAS saves the form and falls over the certificate afterwards: an internal error, and nothing is kept.
func TestVMHostWithABadCertificateIsAnInternalError(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		_, otherKey := newKeyPair(t)
		for _, test := range []struct{ name, certificate, key, text string }{
			{"no PEM", "certificate", "key", "Invalid PEM material"},
			{"no key", certificate, "", "Invalid PEM material"},
			{"no certificate", "", key, "Invalid PEM material"},
			{"another's key", certificate, otherKey, "Private and public keys don't match"},
		} {
			t.Run(test.name, func(t *testing.T) {
				name := uniqueName()
				m.removeAfter(t, "vm-hosts/", "name", name, "vm-hosts/")
				m.create(t, "vm-hosts/", "type", "lxd", "power_address", unreachable, "name", name,
					"certificate", test.certificate, "key", test.key).refuses(t, http.StatusInternalServerError, test.text)
				if has(m.get(t, "vm-hosts/").list(t), "name", name) {
					t.Error("it is saved all the same")
				}
			})
		}
	})
}

// Two VM hosts at one address are possible, unless project and certificate are the same too.
func TestSameVMHostWithTheSameCertificateIsRefused(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		first := m.newUnreachableHost(t, "certificate", certificate, "key", key)
		second := uniqueName()
		m.removeAfter(t, "vm-hosts/", "name", second, "vm-hosts/")
		m.create(t, "vm-hosts/", "type", "lxd", "power_address", unreachable, "project", prefix+"project", "name", second,
			"certificate", certificate, "key", key).
			refuses(t, http.StatusBadRequest, "Pod "+first.str("name")+" with type and parameters already exist.")
		m.newUnreachableHost(t, "certificate", certificate, "key", key, "project", prefix+"other", "name", second)
	})
}

func TestUpdateVMHostChangesOnlyTheGivenParameters(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		certificate, key := newKeyPair(t)
		host := m.newUnreachableHost(t, "certificate", certificate, "key", key)
		m.put(t, vmHostPath(host), "power_address", "127.0.0.1:2").object(t)
		m.checkKeys(t, host, certificate, key)
		otherCertificate, otherKey := newKeyPair(t)
		m.put(t, vmHostPath(host), "certificate", otherCertificate, "key", otherKey).object(t)
		m.checkKeys(t, host, otherCertificate, otherKey)
		got := m.get(t, vmHostPath(host), "op", "parameters").object(t)
		if got.str("power_address") != "127.0.0.1:2" || got.str("project") != prefix+"project" {
			t.Errorf("address %q, project %q; want the changed one and the one of before", got.str("power_address"), got.str("project"))
		}
	})
}

func TestUpdateVMHostRefusals(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		host := m.newUnreachableHost(t)
		m.put(t, vmHostPath(host), "pool", "nosuch").refusesField(t, "pool", "Select a valid choice.")
		m.put(t, vmHostPath(host), "power_address", "").refusesField(t, "power_address", "This field is required.")
		m.put(t, "vm-hosts/999999/", "name", uniqueName()).refuses(t, http.StatusNotFound, "No Pod matches the given query.")
		m.asPlainUser(t).put(t, vmHostPath(host), "zone", "default").refuses(t, http.StatusForbidden)
	})
}

// The machine that MAAS makes for an LXD host is in the default zone and pool, and stays there when the VM host moves.
func TestMachineOfAVMHostIsInZoneAndPoolOfItsOwn(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		before := m.machines(t)
		zone, pool := m.newZone(t).str("name"), m.newPool(t).str("name")
		host := m.newLXDHost(t, "zone", zone, "pool", pool)
		systemID := host.str("host", "system_id")
		if has(before, "system_id", systemID) {
			lacks(t, "MAAS took machine %s, which is not the suite's, for the LXD host's own", systemID)
		}
		machine := m.machine(t, systemID)
		if machine.str("zone", "name") != m.defaultZone(t).str("name") || machine.str("pool", "name") != "default" {
			t.Errorf("the machine is in zone %s and pool %s, want the default ones", machine.str("zone", "name"), machine.str("pool", "name"))
		}
		m.put(t, vmHostPath(host), "zone", m.newZone(t).str("name")).object(t)
		if moved := m.machine(t, systemID); moved.str("zone", "name") != machine.str("zone", "name") {
			t.Errorf("the machine moved to zone %s with the VM host", moved.str("zone", "name"))
		}
	})
}

func TestMachineOfAVMHostCannotBeReleasedBeforeIt(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		before := m.machines(t)
		host := m.newLXDHost(t)
		systemID := host.str("host", "system_id")
		if has(before, "system_id", systemID) {
			lacks(t, "MAAS took machine %s, which is not the suite's, for the LXD host's own", systemID)
		}
		m.op(t, machinePath(systemID), "release").refuses(t, http.StatusBadRequest,
			"The following VM hosts must be removed first: "+host.str("name"))
		if machine := m.machine(t, systemID); machine.str("status_name") != "Deployed" {
			t.Errorf("the machine is %s, want Deployed", machine.str("status_name"))
		}
	})
}

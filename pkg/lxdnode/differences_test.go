// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"slices"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// All that is sent to a node's LXD, whatever its version, is in the table of its differences, and nothing that this one
// takes no more; and what the table says is sent to nodes is sent.
func TestWhatIsSentToANodeIsInTheTable(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]string{"LXD as it is": "", "LXD 6.9": "6.9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := lxdtest.Start(t, lxdbed.Options{Plays: version})
			between := startProxy(t, d.Socket())
			var requests lxdtest.Requests
			between.set(requests.Record)
			n := connectNode(t, between.socket)
			server, err := n.getServer(t.Context(), StepServer, "reading it")
			if err != nil || version != "" && server.Environment.ServerVersion != version {
				t.Fatalf("got %+v, %v", server, err)
			}
			becomeAHost(t, n, d)
			sent, traits := requests.Check(t, server), lxdapi.TraitsOf(server)
			for _, use := range lxdapi.Uses {
				isSent := slices.ContainsFunc(sent, func(u lxdapi.Use) bool { return u.Kind == use.Kind && u.Name == use.Name })
				isPassedOn := use.Name == "volatile.uuid" && server.Config[use.Name] == nil
				isOfAFailure := use.Name == "operations/*" || use.Name == "operations/*/wait"
				if use.By&lxdapi.Nodes != 0 && traits.Takes(&use) && !isSent && !isPassedOn && !isOfAFailure {
					t.Errorf("the %s %q is in the table, and is never sent", use.Kind, use.Name)
				}
			}
		})
	}
}

// becomeAHost makes each of the calls to a node's LXD.
func becomeAHost(t *testing.T, n *Node, d *lxdbed.Daemon) {
	t.Helper()
	config := everything("table")
	config.StorageBackend, config.StorageSizeGB = "btrfs", 2
	if report, err := n.Prepare(t.Context(), config); err != nil || !ready(report) {
		t.Fatalf("got %+v, %v", report, err)
	}
	keys := newKeys(t, "node")
	for range 2 {
		if _, err := n.Trust(t.Context(), "node", config.Project, keys.Certificate); err != nil {
			t.Fatal(err)
		}
		// A person lifts the restriction.
		client := lxdtest.Connect(t, d.Socket())
		fingerprint, err := Fingerprint(keys.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.UpdateCertificate(fingerprint, api.CertificatePut{Name: "node", Type: "client"}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.VMs(t.Context(), config.Project); err != nil {
		t.Error(err)
	}
	if err := n.Distrust(t.Context(), called("node"), nil); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// All that is sent to an LXD, whatever its version, is in the table of its differences, and nothing that this one takes
// no more; and what the table says is sent to direct hosts is sent.
func TestWhatIsSentToADirectHostIsInTheTable(t *testing.T) {
	for name, version := range map[string]string{"LXD as it is": "", "LXD 6.9": "6.9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bedOf(t, lxdbed.Options{Plays: version})
			var requests lxdtest.Requests
			b.between.set(requests.Record)
			b.wholeLife(&requests)
			server, _, err := b.all.GetServer()
			b.must(err)
			if version != "" && server.Environment.ServerVersion != version {
				t.Fatalf("it plays LXD %s", server.Environment.ServerVersion)
			}
			sent, traits := requests.Check(t, server), lxdapi.TraitsOf(server)
			for _, use := range lxdapi.Uses {
				isSent := slices.ContainsFunc(sent, func(u lxdapi.Use) bool { return u.Kind == use.Kind && u.Name == use.Name })
				if use.Name == "operations/*" && version == "" {
					continue // LXD 5.0 shows the failure to who waits for it.
				}
				if use.By&lxdapi.Hosts != 0 && traits.Takes(&use) && !isSent {
					t.Errorf("the %s %q is in the table, and is never sent", use.Kind, use.Name)
				}
			}
		})
	}
}

// A fine-grained identity with all rights in the project may not read what belongs to no project. It is told what lacks.
func TestAnIdentityThatMayNotReadResourcesIsToldWhatLacks(t *testing.T) {
	b := newBed(t)
	b.seen()
	for _, refused := range []string{"/1.0/resources", "/1.0/storage-pools/" + pool + "/resources"} {
		b.between.set(func(lxd http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == refused {
					answer(w, http.StatusForbidden, "Forbidden")
					return
				}
				lxd.ServeHTTP(w, r)
			})
		})
		_, err := b.host.read(t.Context())
		wantKind(t, err, KindNotTrusted)
		for _, way := range []string{"--restricted", "can_view_resources", "viewer"} {
			if !strings.Contains(err.Error(), way) {
				t.Errorf("%s: the error does not say %s: %v", refused, way, err)
			}
		}
		if !api.StatusErrorCheck(err, http.StatusForbidden) {
			t.Errorf("%s: the cause is lost: %v", refused, err)
		}
	}
}

// wholeLife makes each of the calls to LXD.
func (b *bed) wholeLife(requests *lxdtest.Requests) {
	b.t.Helper()
	ctx := b.t.Context()
	b.connect(b.options).Close()

	fingerprint := b.upload("image", "a")
	b.upload("image", "b") // The name goes to another one.
	_, there := b.elsewhereToo()
	between := startProxy(b.t, there)
	between.set(requests.Record)
	there.Address, there.ServerCertificate, there.Dial = between.Address, between.Certificate, nil
	other, mark := b.connect(there), there.Mark("us")
	bring := ImageCopy{Alias: "brought", Fingerprint: fingerprint, From: b.direct, Brought: mark.Of(fingerprint, "brought")}
	b.must(other.CopyImage(ctx, bring, b.host))
	b.must(other.RemoveBrought(ctx, fingerprint, mark))
	b.must(other.CopyImage(ctx, bring, b.host))
	bring.Keep, bring.Brought = true, ""
	b.must(other.CopyImage(ctx, bring, b.host))

	b.managedBridge("lxdbr9")
	s := spec("vm")
	s.Config = map[string]string{KeyUserData: "#cloud-config", KeyNetworkConfig: "{}"}
	s.Disks = []Disk{{Pool: pool, Bytes: 16 << 20}}
	onManaged := spec("managed")
	onManaged.Bridge = "lxdbr9"
	b.must(b.clone(b.host, onManaged))
	for range 2 {
		b.must(b.clone(b.host, s))
	}
	lacking := spec("lacking")
	lacking.Image = strings.Repeat("ab", 32)
	wantKind(b.t, b.clone(b.host, lacking), KindOther)
	_, err := b.host.read(ctx)
	b.must(err)
	b.must(b.host.Find(ctx, "vm", ours))
	b.must(b.host.Start(ctx, "vm", ours, time.Time{}))
	b.must(b.host.Stop(ctx, "vm", ours, time.Time{}))
	b.foreign(b.server, composed, nil)
	b.must(b.host.Adopt(ctx, composed, ours, []string{DeriveMAC("foreign", composed).String()}))
	b.must(b.host.Start(ctx, "managed", ours, time.Time{}))
	for _, name := range []string{"vm", "managed"} {
		b.must(b.host.Delete(ctx, name, ours, time.Time{}))
	}
	vms, err := b.host.List(ctx)
	b.must(err)
	if len(vms) != 1 || vms[0].Name != composed {
		b.t.Errorf("the VMs are %+v", vms)
	}
}

// SPDX-License-Identifier: Apache-2.0

package orphanaudit

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// The manager's credentials can be limited to certain namespaces, so that no cluster uses its MAAS any more. Machines
// that were left there are still ours.
func TestTheManagersOwnMAASIsAuditedForAnyNamespaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{"config/maasEndpoint": "http://maas/MAAS", "credentials/apiKey": "a:b:c"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, namespaces := range map[string][]string{"for all": nil, "for some": {"infra"}} {
		registry := startRegistry(t)
		auditor := &Auditor{
			Base: reconciler.Base{
				Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build(),
				Scopes: &scope.Factory{Registry: registry, Manager: scope.ManagerCredentials{Dir: dir, Namespaces: namespaces}},
			},
		}
		if regions, errs := auditor.regions(t.Context()); len(regions) != 1 || len(errs) > 0 {
			t.Errorf("%s: %d MAASes are audited, want the manager's own; %v", name, len(regions), errs)
		}
	}
}

// Whoever may write a MaasCluster or an LXDHost may make its record unreadable. That ends no audit; which machines of the
// MaasCluster are kept is not known then, so none of it is an orphan.
func TestARecordThatCannotBeReadEndsNoAudit(t *testing.T) {
	t.Parallel()
	of := func(name, record string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{
			infrav1.RecordAnnotation: record, infrav1.OwnerIDAnnotation: name + "1",
		}}
	}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(
		&infrav1.MaasCluster{ObjectMeta: of("bad", "{")}, &infrav1.MaasCluster{ObjectMeta: of("good", "{}")},
		&infrav1.LXDHost{ObjectMeta: of("host", "{")},
	).Build()
	claims, all, err := ReadClaims(t.Context(), c, "here", "")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d MaasClusters, %v", len(all), err)
	}
	for name, want := range map[string]int{"bad": 0, "good": 1} {
		found := claims.Audit([]*maas.Machine{{SystemID: "abc", Hostname: "metal", Status: maas.StatusDeployed, Owner: "capi",
			WorkloadAnnotations: map[string]string{
				ownership.AnnotationOwner: name + "1", ownership.AnnotationMachine: "ns.m", ownership.AnnotationManagement: "here",
			}}})
		if len(found) != want {
			t.Errorf("of the MaasCluster %s %d machines are orphans, want %d: %+v", name, len(found), want, found)
		}
	}
}

// startRegistry runs inventories that do not poll on their own.
func startRegistry(t *testing.T) *inventory.Registry {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	registry := inventory.NewRegistry(inventory.Options{
		ActiveInterval: time.Hour, IdleInterval: time.Hour, Logger: logr.Discard(), Notify: func(string) {},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = registry.Start(ctx) // It ends with the context.
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return registry
}

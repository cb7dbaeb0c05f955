// SPDX-License-Identifier: Apache-2.0

package orphanaudit

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
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

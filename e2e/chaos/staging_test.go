// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// staged is the namespace whose clusters are in the staging MAAS.
const staged = elsewhere + "staging"

// staging is a MAAS that was restored from production's backup while clusters had machines there: it has the same
// users and keys, and machines with the same ids and marks. Whatever its own clusters do changes nothing in
// production, and the reverse.
type staging struct {
	a       *assault
	url     string
	auditor *audit.Auditor
}

func restoreStaging(a *assault) (*staging, error) {
	region, err := box.MAAS.Copy()
	if err != nil {
		return nil, fmt.Errorf("restoring the staging MAAS: %w", err)
	}
	a.t.Cleanup(region.Close)
	server := httptest.NewServer(region.Handler())
	a.t.Cleanup(server.Close)
	isThere := func(namespace string) bool { return namespace == staged }
	auditor, err := audit.Open(region, box.Client, audit.Options{MayTake: mayTake, In: isThere})
	if err != nil {
		return nil, fmt.Errorf("auditing the staging MAAS: %w", err)
	}
	a.t.Cleanup(auditor.Close)
	ours := 0
	for _, m := range region.Machines() {
		if m.AgentName != "" && m.Owner == ourUser {
			ours++
		}
	}
	if ours == 0 {
		a.t.Error("the staging MAAS has no machine with a mark of ours: what it should not take for ours is missing")
	}
	a.figures.add("machines with our marks in the staging MAAS", ours)
	return &staging{a: a, url: server.URL, auditor: auditor}, nil
}

// live runs a cluster's life there. The cluster and its machines have the names of some in production.
func (s *staging) live(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	name := fmt.Sprintf("chaos-%d", number)
	cluster := own{key: client.ObjectKey{Namespace: staged, Name: name}, url: s.url}
	const spec = "image: u-2204-k8s-1.35, resourcePool: capi, minCPU: 2, minMemory: 4096, minDiskSize: 20"
	machines := []sandbox.PlainMachine{
		{Name: name + "-m1", Spec: spec + ", provisioningMode: lxd"}, {Name: name + "-m2", Worker: true, Spec: spec},
	}
	err := cluster.make(ctx, machines...)
	for _, m := range machines {
		if err != nil {
			break
		}
		var provisioned bool
		if provisioned, err = cluster.settles(ctx, m.Name); err == nil && provisioned {
			s.a.figures.add("machines in the staging MAAS", 1)
		}
	}
	who := audit.Who{Namespace: staged, Cluster: name}
	s.a.auditUntil(ctx, "with a cluster in the staging MAAS", func(ctx context.Context) ([]audit.Finding, error) {
		return s.auditor.Steady(ctx, who)
	})
	if err := errors.Join(err, cluster.delete(ctx)); err != nil {
		return err
	}
	findings, err := s.auditor.Gone(ctx, who)
	s.a.report("when a cluster in the staging MAAS was gone", findings, err)
	return nil
}

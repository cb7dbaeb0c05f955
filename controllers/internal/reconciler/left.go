// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// LXDHostsNow lists all LXDHosts as they are now. What was recorded a moment ago decides whether a name, or an address,
// is free: a cache may not have it yet. It only says in which namespaces there are some: the manager may not be allowed
// to list others.
func (b *Base) LXDHostsNow(ctx context.Context) (all []infrav1.LXDHost, err error) {
	cached := &infrav1.LXDHostList{}
	if err := b.Client.List(ctx, cached); err != nil {
		return nil, fmt.Errorf("searching for LXDHosts: %w", err)
	}
	namespaces := list.Each(cached.Items, func(host infrav1.LXDHost) string { return host.Namespace })
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		hosts := &infrav1.LXDHostList{}
		if err := b.APIReader.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("reading which VMs are left on LXDHosts: %w", err)
		}
		all = append(all, hosts.Items...)
	}
	return all, nil
}

// RecordOf returns the record of an LXDHost; nil if there is none that can be read. Whoever may write the LXDHost may
// write it, and holds no other deletion by that.
func (b *Base) RecordOf(ctx context.Context, host *infrav1.LXDHost) *record.Host {
	if host == nil {
		return nil
	}
	recorded, err := b.Records.OpenHost(host)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "An LXDHost can't remember that a VM may be left", "lxdHost",
			client.ObjectKeyFromObject(host))
		return nil
	}
	return recorded
}

// LeftVMs returns what all LXDHosts remember now of VMs of a hostname.
func (b *Base) LeftVMs(ctx context.Context, hostname string) (all []record.LeftVM, err error) {
	hosts, err := b.LXDHostsNow(ctx)
	if err != nil {
		return nil, err
	}
	for i := range hosts {
		if recorded := b.RecordOf(ctx, &hosts[i]); recorded != nil {
			all = append(all, recorded.Left.Of(hostname)...)
		}
	}
	return all, nil
}

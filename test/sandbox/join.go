// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"maps"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

// Join starts another management cluster on the same MAAS, with the same machines and the same network. Of the options,
// those that describe MAAS and its machines are of no effect. It must be stopped before the sandbox that it joined.
func (s *Sandbox) Join(ctx context.Context, options Options) (*Sandbox, error) {
	options.TimeScale = s.options.TimeScale
	options.joins = s
	return Start(ctx, options)
}

// share takes MAAS, its machines, the network and the process-wide settings from the joined sandbox.
func (s *Sandbox) share(joined *Sandbox) {
	s.env, s.logger, s.build = joined.env, joined.logger, joined.build
	s.MAAS, s.MAASURL, s.MAASAPIKey, s.ControlURL = joined.MAAS, joined.MAASURL, joined.MAASAPIKey, joined.ControlURL
	s.guests, s.all, s.realNodes, s.network = joined.guests, joined.all, joined.realNodes, joined.network
	s.previousKubernetes, s.kubernetes = joined.previousKubernetes, joined.kubernetes
}

// Values are those of the chart with which its manager fits into this sandbox.
func (s *Sandbox) Values() map[string]any { return maps.Clone(s.chartValues()) }

// RunPods runs the manager's pods in a namespace, whoever makes them. Stop ends them.
func (s *Sandbox) RunPods(ctx context.Context, namespace string) (*kubelet.Kubelet, error) {
	if s.build == nil {
		s.build = s.buildProgram(ctx, "manager")
	}
	m, err := s.newManager(ctx, kubelet.Options{Namespace: namespace})
	if err != nil {
		return nil, err
	}
	return m.Kubelet, nil
}

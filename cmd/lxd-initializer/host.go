// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// connectLXD finds LXD anew in each pass: it may be installed, or restarted, meanwhile.
func (p *pass) connectLXD(ctx context.Context) (err error) {
	socket := p.options.socket
	if socket == "" {
		if socket, err = lxdnode.SocketPath(); err != nil {
			return err
		}
	}
	p.lxd, err = lxdnode.Connect(ctx, socket)
	if p.refused(err) {
		return errors.Join(err, errStaleSocket)
	}
	return err
}

// prepareLXD makes storage pool, bridge, project, profile and https address what they should be.
func (p *pass) prepareLXD(ctx context.Context) error {
	config := p.options.lxd
	config.ListenAddress = p.options.listenAddress(p.address)
	report, err := p.lxd.Prepare(ctx, config)
	var changed []string
	for _, check := range report.Checks {
		if check.State == lxdnode.Changed {
			changed = append(changed, check.Name+": "+check.Found)
		}
	}
	if len(changed) > 0 {
		p.event(corev1.EventTypeNormal, "LXDPrepared", "%s", strings.Join(changed, "; "))
	}
	return err
}

func (p *pass) trustKeys(ctx context.Context) error {
	changed, err := p.lxd.Trust(ctx, p.keysName(), p.keys.Certificate)
	if changed {
		p.event(corev1.EventTypeNormal, "CertificateTrusted", "LXD now trusts the certificate %s", p.keysName())
	}
	return err
}

// register makes the node's VM host in MAAS what it should be, and looks for an existing one before.
func (p *pass) register(ctx context.Context) error {
	if err := p.connectMAAS(); err != nil {
		return err
	}
	zone, err := p.zone()
	if err != nil {
		return err
	}
	_, systemID := p.machine()
	result, err := p.hosts.Ensure(ctx, vmhosts.Registration{
		Name: p.node.Name, PowerAddress: p.options.powerAddress(p.address), Project: p.options.lxd.Project,
		Certificate: string(p.keys.Certificate), Key: string(p.keys.Key),
		Zone: zone, ResourcePool: p.options.resourcePool, SystemID: systemID, ID: p.hostID,
	})
	p.hostID = result.Host.ID
	switch p.host = result.Host; {
	case result.Created:
		p.event(corev1.EventTypeNormal, "VMHostRegistered", "MAAS has this node as VM host %s", result.Host.Name)
	case len(result.Changes) > 0:
		p.event(corev1.EventTypeNormal, "VMHostUpdated", "MAAS has a new %s of VM host %s", strings.Join(result.Changes, ", "), result.Host.Name)
	}
	return err
}

// connectMAAS makes a client for the credentials as they are now.
func (p *pass) connectMAAS() error {
	config, err := p.options.credentials.config()
	if err != nil {
		return err
	}
	if p.hosts != nil && p.identity == config.ID() {
		return nil
	}
	client, err := maas.NewClient(config)
	if err != nil {
		return fmt.Errorf("making the client of MAAS: %w", err)
	}
	if p.client != nil {
		p.client.Close()
	}
	p.client, p.hosts, p.identity = client, vmhosts.NewService(client), config.ID()
	return nil
}

// distrustOthers takes back the trust in key pairs that this one replaced, now that MAAS uses it.
func (p *pass) distrustOthers(ctx context.Context) error {
	_, err := p.lxd.Distrust(ctx, p.keysName(), p.keys.Certificate)
	return err
}

func (p *pass) distrustAll(ctx context.Context) error {
	_, err := p.lxd.Distrust(ctx, p.keysName(), nil)
	return err
}

// checkResources: MAAS composes VMs only once it knows what the host has.
func (p *pass) checkResources(context.Context) error {
	p.metrics.host(p.host)
	if vmhosts.ResourcesKnown(p.host) {
		return nil
	}
	return &problem{
		reason: reasonResourcesUnknown, status: corev1.ConditionFalse,
		message: fmt.Sprintf("VM host %s is registered; MAAS does not know its cores and memory yet", p.host.Name),
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// repeated is the permit for the registration, which each pass checks again.
var repeated = maas.Unrecorded("a VM host has one address, and MAAS registers it once")

// connectLXD connects to LXD in each pass: it may have been installed or restarted meanwhile.
func (p *pass) connectLXD(ctx context.Context) (err error) {
	p.lxd, err = lxdnode.Connect(ctx, p.options.sockets...)
	if errors.Is(err, lxdnode.ErrNotInstalled) && slices.ContainsFunc(p.options.sockets, inRemovedDirectory) {
		return errors.Join(err, errDirectoryRemoved)
	}
	if err == nil {
		p.lxd.Remember(&p.refusals)
	}
	return err
}

// inRemovedDirectory reports whether the directory of a path is mounted here and no longer exists on the node.
func inRemovedDirectory(file string) bool {
	var dir unix.Stat_t
	return unix.Stat(filepath.Dir(file), &dir) == nil && dir.Nlink == 0
}

// prepareLXD sets up storage pool, bridge, project, profile and https address.
func (p *pass) prepareLXD(ctx context.Context) error {
	config := p.options.lxd
	config.ListenAddress = p.options.listenAddress(p.address)
	checks, err := p.lxd.Prepare(ctx, config)
	var changed []string
	for _, check := range checks {
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
	changed, err := p.lxd.Trust(ctx, p.keysName(), p.options.lxd.Project, p.keys.Certificate)
	if changed {
		p.event(corev1.EventTypeNormal, "CertificateTrusted", "LXD now trusts the certificate %s of %s for the project %s",
			shortFingerprint(p.keys.Certificate), p.keysName(), p.options.lxd.Project)
	}
	return err
}

// register creates or updates the node's VM host in MAAS. It searches for an existing one first: one that MAAS shows on
// the node's machine, or that has a certificate of this node. A new one is made only while LXD has no VMs. If MAAS has
// no VM hosts, the node is offered to the manager instead.
func (p *pass) register(ctx context.Context) error {
	if err := p.connectMAAS(); err != nil {
		return err
	}
	zone, err := p.zone(ctx)
	if err != nil {
		return err
	}
	earlier, err := p.lxd.Earlier(ctx, isInitializer, p.keys.Certificate)
	if err != nil {
		return err
	}
	_, systemID := p.machine()
	wanted := vmhosts.Registration{
		Name: p.node.Name, PowerAddress: p.options.powerAddress(p.address), Project: p.options.lxd.Project,
		Certificate: string(p.keys.Certificate), Key: string(p.keys.Key), Earlier: earlier,
		Zone: zone, ResourcePool: p.options.resourcePool, SystemID: systemID, ID: p.hostID,
	}
	traits, err := p.lxd.Traits(ctx)
	if err != nil {
		return err
	}
	if !traits.TakesMAAS() {
		return p.registerNothing(ctx, traits, wanted)
	}
	result, err := p.hosts.Ensure(ctx, repeated, wanted, p.lxd.VMs)
	if result.NoVMHosts {
		return p.offer(ctx)
	}
	p.hostID = result.Host.ID
	switch p.host = result.Host; {
	case result.Created:
		p.event(corev1.EventTypeNormal, "VMHostRegistered", "MAAS has this node as VM host %s", result.Host.Name)
	case len(result.Changes) > 0:
		p.event(corev1.EventTypeNormal, "VMHostUpdated", "MAAS has a new %s of VM host %s",
			strings.Join(result.Changes, ", "), result.Host.Name)
	}
	return err
}

// registerNothing leaves MAAS as it is, because it can't use this LXD, which may have been upgraded since it was
// registered. If MAAS has no VM hosts, the node is offered to the manager.
func (p *pass) registerNothing(ctx context.Context, traits lxdapi.Traits, wanted vmhosts.Registration) error {
	host, _, err := p.hosts.Check(ctx, wanted)
	if errors.Is(err, maas.Gone) {
		return p.offer(ctx)
	}
	if err != nil {
		return err
	}
	done := "the node is not registered"
	if host != nil {
		done = fmt.Sprintf("VM host %s stays registered, and its VMs stay as they are, but MAAS may not manage them",
			host.Name)
	}
	return &problem{
		reason: infrav1.LXDTooNewReason, status: corev1.ConditionFalse, permanent: true,
		message: traits.NotForMAAS() + "; " + done + ": " + lxdapi.NotForMAASRemedy,
	}
}

// connectMAAS makes a client for the current credentials.
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

// isInitializer reports whether a client in LXD's trust store is the initializer, under this name of the node or an
// earlier one.
func isInitializer(client string) bool { return strings.HasPrefix(client, secretPrefix) }

// distrustOthers removes the trust in key pairs that this one replaced, now that MAAS uses it.
func (p *pass) distrustOthers(ctx context.Context) error {
	if p.offered != nil {
		return p.distrustUnused(ctx)
	}
	return p.lxd.Distrust(ctx, isInitializer, p.keys.Certificate)
}

// distrustUnused is distrustOthers if MAAS has no VM hosts. The manager says when it uses this pair alone. MAAS has the
// pair of that time in the power parameters of each VM that it composed when it had VM hosts, and switches it with
// that: this one stays until the VMs are gone, or the node retires.
func (p *pass) distrustUnused(ctx context.Context) error {
	current, err := lxdnode.Fingerprint(p.keys.Certificate)
	if err != nil || p.keysInUse != current {
		return err
	}
	earlier, err := p.lxd.Earlier(ctx, isInitializer, p.keys.Certificate)
	if err != nil || len(earlier) == 0 {
		return err
	}
	vms, err := p.client.Instances(ctx)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, vm := range vms {
		if fingerprint, err := lxdnode.Fingerprint([]byte(vm.Certificate)); err == nil { // LXD accepts no other.
			used[fingerprint] = true
		}
	}
	for _, fingerprint := range earlier {
		if used[fingerprint] {
			p.earlier++
			continue
		}
		if err := p.lxd.Forget(ctx, fingerprint); err != nil {
			return err
		}
		p.event(corev1.EventTypeNormal, "CertificateRemoved",
			"LXD no longer trusts an earlier certificate of this node, %s: nothing uses it any more", short(fingerprint))
	}
	return nil
}

// distrustAll removes the trust in all key pairs of this node. With neither LXD nor a key pair there never was any.
func (p *pass) distrustAll(ctx context.Context) error {
	err := p.connectLXD(ctx)
	if errors.Is(err, lxdnode.ErrNotInstalled) {
		if _, missing := p.secrets().Get(ctx, p.keysName(), metav1.GetOptions{}); apierrors.IsNotFound(missing) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return p.lxd.Distrust(ctx, isInitializer, nil)
}

// checkMachine checks that MAAS shows the VM host on the node's own machine. Another machine could be released under
// its VMs.
func (p *pass) checkMachine(context.Context) error {
	_, systemID := p.machine()
	if on := p.host.Host.SystemID; systemID != "" && on != "" && on != systemID {
		return &problem{
			reason: reasonWrongMachine, status: corev1.ConditionFalse, permanent: true,
			message: fmt.Sprintf("MAAS has VM host %s on machine %s, but the Node's provider ID names machine %s: release "+
				"neither; find the interface in MAAS that is on the wrong machine", p.host.Name, on, systemID),
		}
	}
	return nil
}

// checkResources checks that MAAS knows the host's resources: it composes VMs only then.
func (p *pass) checkResources(context.Context) error {
	p.metrics.host(p.host)
	if p.offered != nil || p.host.ResourcesKnown() {
		return nil
	}
	return &problem{
		reason: reasonResourcesUnknown, status: corev1.ConditionFalse,
		message: fmt.Sprintf("VM host %s is registered; MAAS does not know its cores and memory yet", p.host.Name),
	}
}

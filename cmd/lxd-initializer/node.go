// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// component is the initializer's name in events and patches.
const component = "lxd-initializer"

// newRecorder returns a recorder of events on Nodes. stop ends it.
func newRecorder(kube kubernetes.Interface, nodeName string) (recorder record.EventRecorder, stop func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: nodeName}),
		broadcaster.Shutdown
}

func (a *agent) getNode(ctx context.Context) (*corev1.Node, error) {
	return a.kube.CoreV1().Nodes().Get(ctx, a.options.nodeName, metav1.GetOptions{})
}

func (p *pass) readNode(ctx context.Context) error {
	node, err := p.getNode(ctx)
	if err != nil {
		return fmt.Errorf("reading the Node %s: %w", p.options.nodeName, err)
	}
	p.node, p.retiring, p.keysInUse = node, retiring(node), node.Annotations[infrav1.LXDKeysAnnotation]
	return nil
}

// retiring reports whether the manager wants the node to leave.
func retiring(node *corev1.Node) bool {
	return metav1.HasAnnotation(node.ObjectMeta, infrav1.LXDHostRetireAnnotation)
}

// findAddress determines the address at which MAAS reaches the node.
func (p *pass) findAddress(context.Context) error {
	if p.address = p.options.nodeIP; p.address.IsValid() {
		return nil
	}
	for _, address := range p.node.Status.Addresses {
		if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			p.address = ip
			return nil
		}
	}
	return &problem{
		reason: reasonAddressUnknown, status: corev1.ConditionFalse,
		message: "the Node has no InternalIP yet; NODE_IP can give the address at which MAAS reaches it",
	}
}

// machine returns zone and system id of the node's machine from the Node's provider ID, maas://zone/system_id. Both are
// "" without one.
func (p *pass) machine() (zone, systemID string) {
	rest, found := strings.CutPrefix(p.node.Spec.ProviderID, "maas://")
	if zone, systemID, split := strings.Cut(rest, "/"); found && split {
		return zone, systemID
	}
	return "", ""
}

// zone returns the wanted zone of the VM host. "": it stays where it is. A machine may have been moved since its
// provider ID was made, which names its zone only if MAAS does not show the machine.
func (p *pass) zone(ctx context.Context) (string, error) {
	if p.options.zone != "" || !p.options.zoneOfMachine {
		return p.options.zone, nil
	}
	zone, systemID := p.machine()
	if systemID == "" {
		return "", &problem{
			reason: reasonZoneUnknown, status: corev1.ConditionFalse,
			message: "no zone is set, and the Node has no provider ID of MAAS yet that names its machine",
		}
	}
	machine, err := p.client.GetMachine(ctx, systemID)
	switch {
	case errors.Is(err, maas.NotFound) || errors.Is(err, maas.Forbidden):
		return zone, nil
	case err != nil:
		return "", fmt.Errorf("reading the zone of the node's machine: %w", err)
	}
	return machine.Zone.Name, nil
}

// report writes the result of the pass: the label once the node is a host, and the condition, each only if it changed.
// The label stays while something fails: it marks the node as a host, the condition reports whether all is well.
func (p *pass) report(ctx context.Context, failed error) error {
	before := p.currentCondition()
	if failed != nil && p.passing(failed, before) {
		return nil
	}
	var errs []error
	if failed == nil && !p.retiring && p.node.Labels[infrav1.LXDHostLabel] != "true" {
		errs = append(errs, p.setLabel(ctx, "true"))
	}
	wanted := p.condition(failed)
	if before != nil && before.Status == wanted.Status && before.Reason == wanted.Reason &&
		before.Message == wanted.Message {
		return errors.Join(errs...)
	}
	errs = append(errs, p.setCondition(ctx, wanted, before))
	if failed != nil {
		p.event(corev1.EventTypeWarning, wanted.Reason, "%s", wanted.Message)
	}
	return errors.Join(errs...)
}

// passing reports whether a failure is too recent to report: LXD and MAAS are restarted now and then, and the host
// stays one meanwhile.
func (p *pass) passing(failed error, before *corev1.NodeCondition) bool {
	return p.failures == 0 && !problemOf(failed).permanent && before != nil && before.Status == corev1.ConditionTrue
}

// condition returns the result of the pass as a condition.
func (p *pass) condition(failed error) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: infrav1.LXDHostReadyNodeCondition}
	switch {
	case failed != nil:
		problem := problemOf(failed)
		c.Status, c.Reason, c.Message = problem.status, problem.reason, problem.message
		if p.retiring {
			c.Reason = infrav1.RetiringReason
		}
	case p.retiring:
		c.Status, c.Reason = corev1.ConditionFalse, infrav1.LXDHostRetiredReason
		c.Message = "LXD on this node no longer trusts the key that MAAS was given"
	case p.offered != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, reasonPrepared, p.offerMessage()
	default:
		c.Status, c.Reason = corev1.ConditionTrue, reasonRegistered
		c.Message = fmt.Sprintf("VM host %s in zone %s and resource pool %s: %d cores, %d MiB of memory",
			p.host.Name, p.host.Zone.Name, p.host.Pool.Name, p.host.Total.Cores, p.host.Total.Memory)
	}
	return c
}

// offerMessage changes with everything that is offered: the manager is woken when the message changes.
func (p *pass) offerMessage() string {
	message := fmt.Sprintf("LXD at %s (certificate %s) trusts the key pair %s for the project %s; MAAS has no VM hosts, "+
		"so the manager makes an LXDHost", p.options.powerAddress(p.address), shortFingerprint(p.offered),
		shortFingerprint(p.keys.Certificate), p.options.lxd.Project)
	if p.earlier > 0 {
		message += fmt.Sprintf("; %d earlier one(s) stay trusted, because MAAS switches VMs with them", p.earlier)
	}
	return message
}

// shortFingerprint returns the fingerprint of a certificate as LXD's lists show it.
func shortFingerprint(certificate []byte) string {
	fingerprint, err := lxdnode.Fingerprint(certificate)
	if err != nil {
		return "unknown" // Both were parsed before.
	}
	return short(fingerprint)
}

// short returns the first 12 of 64 digits.
func short(fingerprint string) string { return fingerprint[:12] }

func (p *pass) currentCondition() *corev1.NodeCondition {
	return list.Find(p.node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == infrav1.LXDHostReadyNodeCondition
	})
}

// setCondition leaves the conditions of others alone: a strategic merge patch merges the list by type.
func (p *pass) setCondition(ctx context.Context, c corev1.NodeCondition, before *corev1.NodeCondition) error {
	now := metav1.Now()
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	if before != nil && before.Status == c.Status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return p.patch(ctx, "condition", types.StrategicMergePatchType,
		map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}}, "status")
}

// setLabel sets the label, or removes it when value is nil.
func (p *pass) setLabel(ctx context.Context, value any) error {
	return p.patch(ctx, "label", types.MergePatchType,
		map[string]any{"metadata": map[string]any{"labels": map[string]any{infrav1.LXDHostLabel: value}}})
}

// patch changes the Node, or its status.
func (p *pass) patch(ctx context.Context, what string, kind types.PatchType, change any, subresources ...string) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("writing the Node's %s: %w", what, err)
	}
	node, err := p.kube.CoreV1().Nodes().Patch(
		ctx, p.node.Name, kind, patch, metav1.PatchOptions{FieldManager: component}, subresources...,
	)
	if err != nil {
		return fmt.Errorf("writing the Node's %s: %w", what, err)
	}
	p.node = node
	return nil
}

// retired reports whether the node has already retired; restarts don't change that.
func (p *pass) retired() bool {
	c := p.currentCondition()
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == infrav1.LXDHostRetiredReason
}

// begin records, before anything is done, that a retirement will have something to undo. It does so on a node that
// never was a host, and on one whose retirement was withdrawn. The node may have been asked to retire meanwhile: the
// manager waits only if it saw the condition when it asked.
func (p *pass) begin(ctx context.Context) error {
	before := p.currentCondition()
	if p.retiring || (before != nil && !p.retired()) {
		return nil
	}
	err := p.setCondition(ctx, corev1.NodeCondition{
		Type: infrav1.LXDHostReadyNodeCondition, Status: corev1.ConditionFalse, Reason: reasonPreparing,
		Message: "the node is made an LXD host",
	}, before)
	p.retiring = retiring(p.node)
	return err
}

// removeLabel is the first step of retirement: from now on nothing new relies on this host.
func (p *pass) removeLabel(ctx context.Context) error {
	if _, labelled := p.node.Labels[infrav1.LXDHostLabel]; !labelled {
		return nil
	}
	return p.setLabel(ctx, nil)
}

// event records an event on the Node.
func (p *pass) event(kind, reason, format string, args ...any) {
	p.events.Eventf(p.node, kind, reason, format, args...)
}

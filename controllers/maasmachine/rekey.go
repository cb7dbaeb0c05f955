// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// rekey makes MAAS switch a VM that runs with the key pair that its LXDHost has now. MAAS is asked only when that pair,
// or MAAS's driver for the VM, is another one than is known.
func (r *Reconciler) rekey(ctx context.Context, l *life) (outcome, error) {
	namespace, name, is := lxd.SoleLXDHost(l.record.Hosts)
	if !is {
		return proceed, nil
	}
	host := &infrav1.LXDHost{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, host); err != nil {
		return proceed, client.IgnoreNotFound(err)
	}
	status, wanted := &l.MaasMachine.Status, host.Status.ClientCertificate
	if wanted == nil || (status.LXDCertificate == wanted.Fingerprint && l.maas.PowerType == maas.PowerTypeLXD) {
		return proceed, nil
	}
	if out := r.awaitKeys(l); out.Waits() {
		return out, nil
	}
	if out, err := r.prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	vm := l.vm(l.maas.SystemID)
	vm.HostRef = lxd.DirectRef(namespace, name)
	done, err := l.Machines.LXD().RekeyVM(ctx, vm, wanted.Fingerprint, func(power maas.LXDPower) error { return r.giveKeys(ctx, l, power) })
	if err != nil || !done {
		return report.Retry(report.MendRetry, infrav1.EarlierKeysInUseReason, "MAAS does not switch VM %s with the key pair of LXDHost %s yet", l.maas.Hostname, name), err
	}
	status.LXDCertificate = wanted.Fingerprint
	return proceed, nil
}

// awaitKeys waits while an earlier call may still bring back another key pair.
func (r *Reconciler) awaitKeys(l *life) outcome {
	if !l.record.IsPending(record.ChangeKeys) {
		return proceed
	}
	if left := l.record.Unsettled(); left > 0 {
		return report.Retry(min(left, report.CapacityRetry), infrav1.MAASUnavailableReason, "%s", record.LostRequest)
	}
	l.record.Done(record.ChangeKeys)
	return proceed
}

func (r *Reconciler) giveKeys(ctx context.Context, l *life, power maas.LXDPower) error {
	err := l.record.Call(ctx, record.ChangeKeys, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.SetPower(ctx, permit, l.maas, power)
	})
	if err != nil {
		return fmt.Errorf("making MAAS switch VM %s with another key pair: %w", l.maas.Hostname, err)
	}
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, "KeysChanged", "Rekey", "MAAS switches the VM with another key pair")
	return nil
}

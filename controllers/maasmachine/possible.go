// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// possible stops, before a machine is taken, at what the spec alone shows to be impossible or harmful.
func (r *Reconciler) possible(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil && l.maas.Status != maas.StatusReady {
		return proceed, nil
	}
	why, err := hardwareSyncMisfit(ctx, l)
	if err != nil {
		return proceed, err
	}
	if why = cmp.Or(why, crashDumpMisfit(l)); why == "" {
		return proceed, nil
	}
	return report.Wait(report.SafetyRetry, infrav1.SpecImpossibleReason, "%s", why), nil
}

// hardwareSyncMisfit returns why the machine can't have hardware sync, or "". MAAS would assign the virtual IP to the
// control plane that holds it, and so turn its reservation into a part of that machine; and an LXDHost is only made at
// an address that MAAS has from others than the node.
func hardwareSyncMisfit(ctx context.Context, l *life) (string, error) {
	why := ""
	switch {
	case !l.MaasMachine.Spec.HardwareSync:
		return "", nil
	case isHost(l):
		_, has, err := l.Inventory.AnyVMHosts(ctx, vmHostsMaxAge)
		if err != nil || has {
			return "", err
		}
		why = "a node of a host cluster, and MAAS has no VM hosts: addresses that a node reports prove nothing of its LXD"
	case l.IsControlPlane() && l.Endpoint() == scope.EndpointVirtualIP:
		why = fmt.Sprintf("a control plane of a cluster with a virtual IP (%s), which MAAS would assign to it",
			l.MaasCluster.Spec.ControlPlaneEndpoint.Host)
	default:
		return "", nil
	}
	return "spec.hardwareSync is true, and this is " + why + "; remove hardwareSync from the template", nil
}

// crashDumpMisfit returns why no machine of the spec can dump its kernel, or "".
func crashDumpMisfit(l *life) string {
	spec, archs := l.MaasMachine.Spec, strings.Join(machine.DumpArchitectures, ", ")
	arch, _, _ := strings.Cut(spec.Architecture, "/")
	vm, why := l.VMSpec().Resources, ""
	switch {
	case !spec.KernelCrashDump:
		return ""
	case l.IsLXD() && !machine.DumpsCrashes(vm.Cores, vm.Memory):
		why = fmt.Sprintf("the VM has %d cores and %d MiB: MAAS enables it from %d cores and %d MiB on",
			vm.Cores, vm.Memory, machine.LeastDumpCores, machine.LeastDumpMemory)
	case int(spec.MinMemory) > machine.MostDumpMemory:
		why = fmt.Sprintf("spec.minMemory is %d MiB: MAAS enables it up to %d MiB", spec.MinMemory, machine.MostDumpMemory)
	case arch != "" && !slices.Contains(machine.DumpArchitectures, arch):
		why = fmt.Sprintf("spec.architecture is %s: MAAS enables it on %s", spec.Architecture, archs)
	default:
		return ""
	}
	return "spec.kernelCrashDump is true, and " + why + "; change that, or remove kernelCrashDump, in the template"
}

// withoutCrashDump returns why a deployed machine does not dump its kernel although the spec asks for it, or "".
func withoutCrashDump(spec infrav1.MaasMachineSpec, m *maas.Machine) string {
	switch {
	case !spec.KernelCrashDump || (m.KernelCrashDump != nil && *m.KernelCrashDump):
		return ""
	case m.KernelCrashDump == nil:
		return "spec.kernelCrashDump has no effect: it needs MAAS 3.6"
	}
	return fmt.Sprintf("spec.kernelCrashDump has no effect: MAAS enables it on machines with %d cores, %d to %d MiB, "+
		"and one of the architectures %s; this one has %d cores and %d MiB, and is %s. "+
		"Raise minCPU and minMemory in the template", machine.LeastDumpCores, machine.LeastDumpMemory, machine.MostDumpMemory,
		strings.Join(machine.DumpArchitectures, ", "), m.CPUCount, m.Memory, m.Architecture)
}

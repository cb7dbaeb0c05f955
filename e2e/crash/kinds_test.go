// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// kind is a kind of life. There is no bootstrap provider, and no kubeadm in the user data: whether a cluster results
// does not matter here.
type kind struct {
	name string
	// machine is the spec of the MaasMachine, as a PlainMachine has it, with ADDRESS for the static address, and TAG for
	// that of the machine which no other walker may have; "" where the cluster has no machine.
	machine string
	// worker means that the machine is no control plane, and that the API endpoint has no address.
	worker bool
	// direct means that the machine is a VM on an LXDHost of the walker's namespace.
	direct bool
	// remedied means that the machine is switched off and on, for its Node is not healthy.
	remedied bool
	// kept means that the next Machine of its MachineDeployment gets the machine, and that it waits for a third one when
	// the cluster is deleted.
	kept bool
	// spare is the state of the machine, a VM, when the host of a second VM that it has can be asked again; "": it has one VM.
	spare state
	// covered means that other kinds make its calls, too: only the walk that visits everything leads such lives.
	covered bool
	// calls are those that every such life makes, by operation, or by method and endpoint if there is none: a manager
	// has to die at each of them.
	calls []string
}

// leads reports whether the API endpoint has the address of the machine, which then has the static address.
func (k *kind) leads() bool { return k.machine != "" && !k.worker }

// image is what VMs boot.
const image = "u-2204-k8s-1.35"

var (
	aCluster = &kind{name: "cluster", covered: true}
	aVM      = &kind{
		name:    "VM",
		machine: "provisioningMode: lxd, image: " + image + ", staticIP: ADDRESS, minCPU: 2, minMemory: 4096, minDiskSize: 20, tags: [lxd-host]",
		calls:   []string{"compose", "deploy", "DELETE machines/{id}/"},
	}
	aDirectVM = &kind{
		name: "VM on an LXDHost", direct: true,
		machine: "provisioningMode: lxd, image: " + image + ", staticIP: ADDRESS, minCPU: 1, minMemory: 2048, minDiskSize: 8, " +
			"lxdConfig: {vmHost: " + directHost + "}",
		calls: []string{
			"POST devices/", "link_subnet", "set_workload_annotations", makeVM, switchVM, deleteVM, "DELETE devices/{id}/",
		},
	}
	aDirectVMToRemedy = &kind{
		name: "VM on an LXDHost that is remedied", direct: true, worker: true, remedied: true, machine: aDirectVM.machine,
		calls: []string{switchVM},
	}
	bareMetal = &kind{
		name: "bare metal", worker: true, remedied: true,
		machine: "image: u-2204-k8s-1.35, minCPU: 2, minMemory: 4096, resourcePool: capi",
		calls:   []string{"allocate", "deploy", "power_off", "power_on", "release"},
	}
	shapedBareMetal = &kind{
		name: "bare metal with storage, checks and interfaces", worker: true,
		machine: "image: u-2204-k8s-1.35, minCPU: 2, minMemory: 4096, resourcePool: capi, storage: {layout: lvm, rootDisk: {minSize: 1}}, " +
			"checks: {scripts: [smartctl-validate]}, interfaces: [{name: bond0, type: bond, parents: [enp1s0], linkMode: auto}]",
		calls: []string{
			"allocate", "set_storage_layout", "test", "create_bond", "deploy", "update_nodes", "release", "DELETE nodes/{id}/interfaces/{iface}/",
			"restore_storage_configuration",
		},
	}
	bareMetalToKeep = &kind{
		name: "bare metal that is kept", worker: true, kept: true,
		machine: "image: u-2204-k8s-1.35, minCPU: 2, minMemory: 4096, resourcePool: " + sandbox.OwnPool + ", tags: [TAG], release: {keep: {}}",
		calls:   []string{"power_off", "release", "allocate", "deploy"},
	}
	bareMetalWithAddress = &kind{
		name: "bare metal with an address", covered: true,
		machine: "image: u-2204-k8s-1.35, staticIP: ADDRESS, minCPU: 2, minMemory: 4096, resourcePool: capi",
		calls:   []string{"allocate", "link_subnet", "deploy", "release"},
	}
)

// kinds are the lives that are walked through. Where LXD can't run, VMs on LXDHosts are not. They are last: what the others
// cover may be left out.
var kinds = []*kind{
	aCluster, aVM, bareMetal, shapedBareMetal, bareMetalToKeep, bareMetalWithAddress,
	withSpare(failed, false), withSpare(pending, true), withSpare(running, true), withSpare(deleted, true),
	aDirectVM, aDirectVMToRemedy,
	withDirectSpare(pending, false), withDirectSpare(running, true), withDirectSpare(failed, true), withDirectSpare(deleted, true),
}

// manifest returns the first objects of a life of this kind, of a walker.
func (k *kind) manifest(key client.ObjectKey, w *walker) string {
	plain := sandbox.Plain{Key: key}
	switch {
	case k.machine == "":
		return plain.Manifest()
	case k.kept:
		return plain.Manifest(k.plain(key.Name, w, key.Name)) + plain.Deployment(key.Name)
	}
	return plain.Manifest(k.plain(key.Name, w, ""))
}

// plain returns a machine of a MachineDeployment, or of none.
func (k *kind) plain(name string, w *walker, deployment string) sandbox.PlainMachine {
	spec := strings.NewReplacer("ADDRESS", w.address, "TAG", sandbox.OwnTag(w.user)).Replace(k.machine)
	return sandbox.PlainMachine{Name: name, Worker: k.worker, Spec: spec, Deployment: deployment}
}

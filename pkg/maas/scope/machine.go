// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

// The keys of a bootstrap Secret (Cluster API contract), and the only format that the machines of MAAS and LXD read:
// all have cloud-init. A Secret without a format has this one.
const (
	bootstrapDataKey   = "value"
	bootstrapFormatKey = "format"
	cloudConfig        = "cloud-config"
)

// Machine is one MaasMachine for one reconcile.
type Machine struct {
	*Cluster
	Machine     *clusterv1.Machine
	MaasMachine *infrav1.MaasMachine
}

// IsControlPlane reports whether the machine is a control plane.
func (m *Machine) IsControlPlane() bool { return util.IsControlPlaneMachine(m.Machine) }

// IsLXD reports whether the machine is an LXD VM.
func (m *Machine) IsLXD() bool { return m.MaasMachine.Spec.IsLXD() }

// Identity returns what identifies the machine in MAAS.
func (m *Machine) Identity() ownership.Identity {
	id := ownership.Identity{
		OwnerID:   m.OwnerID(),
		AgentName: m.Mark(),
		Annotations: map[string]string{
			ownership.AnnotationOwner:   m.OwnerID(),
			ownership.AnnotationMachine: m.MaasMachine.Namespace + "." + m.MaasMachine.Name,
			ownership.AnnotationCluster: m.Cluster.Cluster.Name,
		},
	}
	if m.managementID != "" {
		id.Annotations[ownership.AnnotationManagement] = m.managementID
	}
	if m.IsLXD() {
		id.Hostname = maas.Hostname(m.MaasMachine.Name, m.OwnerID())
	}
	return id
}

// Mark is what MAAS stores as who took a machine, or did something to it. It outlives a move of the cluster, and nobody
// else has it.
func (m *Machine) Mark() string { return ownership.AgentName(m.OwnerID(), m.MaasMachine.Name) }

// FailureDomain returns the zone that the machine must be in, or "". The control-plane provider chooses among the
// failure domains of the Cluster's infrastructure: where that is another provider's, they need not be zones.
func (m *Machine) FailureDomain() string {
	wanted, zones := m.Machine.Spec.FailureDomain, m.MaasCluster.Status.FailureDomains
	isWanted := func(zone clusterv1.FailureDomain) bool { return zone.Name == wanted }
	if m.IsControlPlane() && m.MaasCluster.Spec.ClusterName != "" && len(zones) > 0 &&
		!slices.ContainsFunc(zones, isWanted) {
		wanted = ""
	}
	return cmp.Or(wanted, m.MaasMachine.Spec.FailureDomain)
}

// ProviderID returns the ID that links the machine to its Node.
func (m *Machine) ProviderID(of *maas.Machine) string {
	scheme := "maas"
	if m.IsLXD() {
		scheme = "maas-lxd"
	}
	return scheme + "://" + of.Zone.Name + "/" + of.SystemID
}

// Constraints returns the constraints for a bare-metal machine.
func (m *Machine) Constraints() maas.AllocateParams {
	constraints := Constraints(m.MaasMachine.Spec)
	constraints.Zone = m.FailureDomain()
	return constraints
}

// Constraints returns the constraints of a spec for bare-metal machines, without those of a single machine.
func Constraints(spec infrav1.MaasMachineSpec) maas.AllocateParams {
	return maas.AllocateParams{
		SystemID: spec.SystemID, Zone: spec.FailureDomain, Pool: spec.ResourcePool,
		Tags: spec.Tags, NotTags: spec.NotTags, Architecture: spec.Architecture,
		MinCPU: int(spec.MinCPU), MinMemory: int(spec.MinMemory), MinDiskSize: int(spec.MinDiskSize),
	}
}

// StorageWish returns the storage layout of a spec.
func StorageWish(s *infrav1.MachineStorage) machine.StorageWish {
	wish := machine.StorageWish{Layout: string(s.Layout), Options: map[string]string{}}
	for key, value := range s.Options {
		wish.Options[key] = string(value)
	}
	if d := s.RootDisk; d != nil {
		wish.RootDisk = &machine.DiskWish{Tags: d.Tags, Serial: d.Serial, MinSize: int(d.MinSize)}
	}
	return wish
}

// Marks returns what the machine's VM carries in LXD, if it is made through LXD's own API.
func (m *Machine) Marks() lxdhost.Marks {
	return lxdhost.Marks{Owner: m.OwnerID(), Machine: m.Identity().Hostname, Management: m.managementID}
}

// VM returns the machine's VM as package lxd knows it, without its host.
func (m *Machine) VM(systemID string) lxd.VM {
	return lxd.VM{SystemID: systemID, Hostname: m.Identity().Hostname, Namespace: m.MaasMachine.Namespace,
		Marks: m.Marks(), Mark: m.Mark()}
}

// VMSpec returns the spec of the machine's VM.
func (m *Machine) VMSpec() lxd.VMSpec {
	vm := m.TemplateVM(m.MaasMachine.Spec, m.IsControlPlane())
	vm.Hostname, vm.Zone = m.Identity().Hostname, m.FailureDomain()
	vm.Marks = m.Marks()
	vm.AgentName, vm.Annotations = m.Mark(), m.Identity().Annotations
	return vm
}

// TemplateVM returns the spec of the cluster's VMs with a spec, without the parts of a single machine.
func (c *Cluster) TemplateVM(spec infrav1.MaasMachineSpec, controlPlane bool) lxd.VMSpec {
	vm := VMSpec(c.MaasCluster.Namespace, spec)
	vm.Cluster = c.OwnerID()
	if controlPlane { // Control planes are kept apart from each other, but not from workers.
		vm.Cluster += "/control-plane"
	}
	return vm
}

// VMSpec returns the VM spec of a spec in a namespace, without the parts of a single machine and cluster.
func VMSpec(namespace string, spec infrav1.MaasMachineSpec) lxd.VMSpec {
	config := spec.LXDConfig
	if config == nil {
		config = &infrav1.LXDMachineConfig{}
	}
	vm := lxd.VMSpec{
		Namespace: namespace,
		Resources: lxd.Resources{
			Cores:  int(cmp.Or(spec.MinCPU, infrav1.DefaultVMCores)),
			Memory: int(cmp.Or(spec.MinMemory, infrav1.DefaultVMMemoryMB)),
			Disk:   diskSize(spec, config),
		},
		Zone: spec.FailureDomain, ResourcePool: spec.ResourcePool, Tags: spec.Tags, NotTags: spec.NotTags,
		HostName: config.VMHost, Project: config.Project, Profile: config.Profile,
		StoragePool: config.Storage.Pool, Commission: config.Commission, Image: spec.Image,
		SecureBoot: config.SecureBoot,
	}
	if config.AntiAffinity == infrav1.AntiAffinityRequired {
		vm.AntiAffinity = lxd.RequireApart
	}
	if config.Network.Bridge != "" {
		vm.Devices = []lxd.Device{{Name: "eth0", Bridge: config.Network.Bridge}}
	}
	for _, disk := range config.Disks {
		vm.MoreDisks = append(vm.MoreDisks, lxd.Disk{Size: gigabytes(disk.Size), Pool: disk.Pool})
	}
	vm.Hardware = hardware(config.Devices)
	for _, device := range config.Network.Devices {
		vm.Devices = append(vm.Devices, lxd.Device{Name: device.Name, Bridge: device.Bridge,
			Subnet: canonical(device.Subnet)})
	}
	return vm
}

// diskSize returns the size in GB. The API server accepts only digits.
func diskSize(spec infrav1.MaasMachineSpec, config *infrav1.LXDMachineConfig) int {
	return cmp.Or(gigabytes(config.Storage.Size), int(spec.MinDiskSize), int(infrav1.DefaultVMDiskGB))
}

// gigabytes reads a size; none is 0.
func gigabytes(digits string) int {
	size, _ := strconv.Atoi(digits)
	return size
}

// hardware returns devices in LXD's form.
func hardware(devices []infrav1.LXDDevice) map[string]map[string]string {
	if len(devices) == 0 {
		return nil
	}
	all := map[string]map[string]string{}
	for _, device := range devices {
		all[device.Name] = map[string]string{"type": string(device.Type)}
		maps.Copy(all[device.Name], device.Properties)
	}
	return all
}

// UserData returns the bootstrap data of this machine as they are: they may be compressed. Its error is
// *BootstrapDataError if there are none, and *BootstrapFormatError if no machine could read them. Call it only when
// Machine.spec.bootstrap.dataSecretName is set.
func (m *Machine) UserData(ctx context.Context) ([]byte, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: m.Machine.Namespace, Name: *m.Machine.Spec.Bootstrap.DataSecretName}
	err := m.client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, &BootstrapDataError{Secret: key.Name, Problem: "does not exist"}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the bootstrap data in Secret %s: %w", key.Name, err)
	}
	if format := string(secret.Data[bootstrapFormatKey]); format != "" && format != cloudConfig {
		return nil, &BootstrapFormatError{Secret: key.Name, Format: format}
	}
	data, ok := secret.Data[bootstrapDataKey]
	if !ok {
		return nil, &BootstrapDataError{Secret: key.Name, Problem: "has no key " + bootstrapDataKey}
	}
	return data, nil
}

// BootstrapDataError means that there is no user data in the Secret that the Machine names.
type BootstrapDataError struct{ Secret, Problem string }

// Error names the field and the remedy.
func (e *BootstrapDataError) Error() string {
	return fmt.Sprintf("Secret %s, which spec.bootstrap.dataSecretName of the Machine names, %s: have the bootstrap "+
		"provider make it, or create it", e.Secret, e.Problem)
}

// BootstrapFormatError means that the user data are not for cloud-init.
type BootstrapFormatError struct{ Secret, Format string }

// Error names the field and the remedy.
func (e *BootstrapFormatError) Error() string {
	return fmt.Sprintf("Secret %s, which spec.bootstrap.dataSecretName of the Machine names, has the format %q: a "+
		"machine of MAAS or LXD reads %s only; set that in the bootstrap configuration (spec.format of a KubeadmConfig), "+
		"and replace the Machine", e.Secret, e.Format, cloudConfig)
}

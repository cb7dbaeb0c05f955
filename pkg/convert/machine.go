// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

const (
	// filledInDiskGB is the default of vmConfig.diskSize there.
	filledInDiskGB = 60
	// leastDiskGB and leastMemoryMB are the minimum of an LXD VM here.
	leastDiskGB   = 8
	leastMemoryMB = 2048
	// leastMetalMB is what bare metal has to have at least, wherever it is given.
	leastMetalMB = 1024
)

var (
	imageName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)
	bareImage   = regexp.MustCompile(`^[^/]+$`)
	tagName     = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	storagePool = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
)

func (o *object) convertTemplate(spec mapping) {
	spec.check([]string{"template"})
	template, ok := spec.child("template")
	if !ok {
		spec.problem("template", "it is missing")
		return
	}
	template.check([]string{"spec"})
	machine, ok := template.child("spec")
	if !ok {
		template.problem("spec", "it is missing")
		return
	}
	o.convertMachine(machine, true)
}

func (o *object) convertMachine(spec mapping, inTemplate bool) {
	spec.check(children(MachineFields, ""))
	lxd, isVM := mapping{}, false
	if spec.has("lxd") {
		var ok bool
		if lxd, ok = spec.child("lxd"); !ok {
			return
		}
		lxd.check(children(MachineFields, "lxd"))
		if isVM, ok = lxd.flag("enabled"); !ok && lxd.has("enabled") {
			return
		}
	}
	o.convertIdentity(spec, inTemplate, isVM)
	o.convertImage(spec)
	if _, ok := spec.text("failureDomain"); ok {
		spec.note("failureDomain", "Machine.spec.failureDomain overrides it here, and control planes always have one (see "+
			"failureDomains of the MaasCluster); there it was the other way round")
	}
	spec.text("resourcePool")
	o.convertTags(spec, isVM)
	o.convertSizes(spec, isVM)
	if inMemory, _ := spec.flag("deployInMemory"); inMemory && isVM {
		spec.lose("deployInMemory", "VMs were deployed to their disks in spite of it")
	}
	address := o.convertAddress(spec)
	switch {
	case isVM:
		o.convertVM(spec, lxd, address)
	case lxd.node != nil:
		o.dropLXD(spec, lxd)
	}
}

// convertIdentity: existing machines stay with the provider that made them.
func (o *object) convertIdentity(spec mapping, inTemplate, isVM bool) {
	if _, ok := spec.text("providerID"); ok {
		spec.problem("providerID", "this machine stays with the provider that made it: leave it out of the input, and "+
			"its Machine; new ones are made from the template")
	}
	if _, ok := spec.text("systemID"); ok {
		switch {
		case inTemplate:
			spec.problem("systemID", "it belongs to one machine: remove it, and choose machines by tags or resourcePool")
		case isVM:
			spec.problem("systemID", "this VM stays with the provider that made it: remove it")
		default:
			spec.note("systemID", "it chooses this one machine here; there it was ignored until the controller had written it")
		}
	}
	if _, ok := spec.text("parent"); ok {
		spec.lose("parent", "it did not choose a VM host; for that, set lxdConfig.vmHost to the name of one in MAAS")
	}
}

func (o *object) convertImage(spec mapping) {
	image, ok := spec.text("image")
	switch {
	case !ok && !spec.has("image"):
		spec.problem("image", "it is missing")
	case !ok: // It was already reported.
	case !imageName.MatchString(image) || len(image) > 255-len("custom/"):
		spec.problem("image", "%q is neither osystem/series nor the name of an image%s", image, fillIn(image))
	case bareImage.MatchString(image):
		spec.set("image", scalar(textTag, "custom/"+image)) // It was deployed under this name.
	}
}

func (o *object) convertTags(spec mapping, isVM bool) {
	tags := spec.names("tags")
	for _, tag := range tags {
		if !tagName.MatchString(tag) {
			spec.problem("tags", "%q is not a valid name of a MAAS tag: letters, digits, _ and -", tag)
		}
	}
	if len(tags) > 1 && !isVM {
		spec.note("tags", "a machine has to have all of them here; there MAAS was asked for the last one")
	}
}

func (o *object) convertSizes(spec mapping, isVM bool) {
	if cores, ok := spec.number("minCPU"); ok && cores > 4096 {
		spec.problem("minCPU", "it has to be at most 4096")
	} else if !spec.has("minCPU") && isVM {
		spec.note("minCPU", "it is not given: the VM gets %d cores", infrav1.DefaultVMCores)
	}
	memory, ok := spec.number("minMemory")
	switch {
	case ok && isVM && memory < leastMemoryMB:
		spec.problem("minMemory", "a VM needs at least %d (MB) here: current Ubuntu does not boot with less", leastMemoryMB)
	case ok && memory > 0 && memory < leastMetalMB:
		spec.problem("minMemory", "it has to be at least %d here: it is in MB", leastMetalMB)
	case !spec.has("minMemory") && isVM:
		spec.note("minMemory", "it is not given: the VM gets %d MB", infrav1.DefaultVMMemoryMB)
	}
	if _, ok := spec.number("minDiskSize"); ok && !isVM {
		spec.note("minDiskSize", "it counts here; there it was ignored on bare metal, so that machines with smaller disks "+
			"may have been used")
	}
}

// dropLXD leaves out what means nothing for bare metal.
func (o *object) dropLXD(spec, lxd mapping) {
	const why = "lxd.enabled is not true, so that it had no effect"
	if vm, ok := lxd.child("vmConfig"); ok {
		vm.check(children(MachineFields, "lxd.vmConfig"))
		o.dropUnused(lxd, vm, "vmConfig", map[string]string{"diskSize": strconv.Itoa(filledInDiskGB), "autoStart": "true"},
			why)
	}
	spec.remove("lxd")
}

// convertVM converts lxd to provisioningMode, minDiskSize and lxdConfig.
func (o *object) convertVM(spec, lxd mapping, address string) {
	config := mapping{o, &yaml.Node{Kind: yaml.MappingNode}, ""}
	if vm, ok := lxd.child("vmConfig"); ok {
		vm.check(children(MachineFields, "lxd.vmConfig"))
		o.convertDisk(spec, vm)
		if pool, ok := vm.text("storagePool"); ok {
			if !storagePool.MatchString(pool) {
				vm.problem("storagePool", "%q is not a valid name of an LXD storage pool: letters, digits, '.', '_' and '-'", pool)
			}
			vm.note("storagePool", "it counts here: VM hosts without this pool are not used; there it was ignored")
			config.set("storage", pairs("pool", pool))
		}
		if devices := o.convertDevices(vm, address); devices != nil {
			network := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{scalar(textTag, "devices"), devices}}
			config.set("network", network)
		}
		if start, ok := vm.flag("autoStart"); ok && !start {
			vm.lose("autoStart", "MAAS decides when a VM runs")
		}
	}
	o.checkDisk(spec)
	spec.rename("lxd", "provisioningMode", scalar(textTag, string(infrav1.ProvisioningModeLXD)))
	if len(config.node.Content) > 0 {
		spec.set("lxdConfig", config.node)
	}
}

// convertDisk: of two sizes the larger one was used.
func (o *object) convertDisk(spec, vm mapping) {
	given := vm.has("diskSize")
	size, ok := vm.number("diskSize")
	if !given {
		size = filledInDiskGB
		vm.note("diskSize", "it is not given, and %d GB were filled in there: written as minDiskSize", filledInDiskGB)
	} else if !ok {
		return // It was 0, which left it to minDiskSize; or a problem was already reported.
	}
	least, hasLeast := spec.number("minDiskSize")
	switch {
	case hasLeast && least >= size:
	case hasLeast || !spec.has("minDiskSize"):
		spec.set("minDiskSize", scalar(numberTag, strconv.Itoa(size)))
	}
}

func (o *object) checkDisk(spec mapping) {
	size, ok := spec.number("minDiskSize")
	switch {
	case ok && size < leastDiskGB:
		spec.problem("minDiskSize", "a VM's disk has at least %d (GB) here: current Ubuntu does not install on less",
			leastDiskGB)
	case !ok && !spec.has("minDiskSize"):
		spec.note("minDiskSize", "it is not given: the VM gets a disk of %d GB", infrav1.DefaultVMDiskGB)
	}
}

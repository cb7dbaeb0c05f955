// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// manifest is an object of a kind with this spec, in YAML; "machine" is a MaasMachineTemplate's.
func manifest(kind, spec string) string {
	head := "apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: " + kind + "\nmetadata: {name: x}\nspec: "
	if kind == "MaasMachineTemplate" {
		return head + "{template: {spec: " + spec + "}}\n"
	}
	return head + spec + "\n"
}

// The paths are those in the machine's spec.
func TestMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		spec, want string
		findings   []string
	}{
		"the least": {spec: "{image: custom/i, minCPU: 1, minMemory: 1024}", want: "{image: custom/i, minCPU: 1, minMemory: 1024}"},
		"what is empty means nothing": {
			spec: `{image: custom/i, minCPU: 0, minMemory: 0, minDiskSize: 0, resourcePool: "", failureDomain: "", tags: [], systemID: null, lxd: null}`,
			want: "{image: custom/i}",
		},
		"an image's name alone is an uploaded image": {spec: "{image: jammy}", want: "{image: custom/jammy}"},
		"an image with its system":                   {spec: "{image: ubuntu/jammy}", want: "{image: ubuntu/jammy}"},
		"double and empty tags":                      {spec: `{image: a/b, tags: [a, "", a]}`, want: "{image: a/b, tags: [a]}"},
		"several tags":                               {spec: "{image: a/b, tags: [a, b]}", want: "{image: a/b, tags: [a, b]}", findings: []string{"note tags"}},
		"deployed in memory":                         {spec: "{image: a/b, deployInMemory: true}", want: "{image: a/b, deployInMemory: true}"},
		"a disk of bare metal":                       {spec: "{image: a/b, minDiskSize: 9}", want: "{image: a/b, minDiskSize: 9}", findings: []string{"note minDiskSize"}},
		"a zone":                                     {spec: "{image: a/b, failureDomain: z}", want: "{image: a/b, failureDomain: z}", findings: []string{"note failureDomain"}},
		"a parent": {
			spec: "{image: a/b, parent: abc123}", want: "{image: a/b}", findings: []string{"loss parent"},
		},
		"lxd that is off, as it was filled in": {
			spec: "{image: a/b, lxd: {enabled: false, vmConfig: {diskSize: 60, autoStart: true}}}", want: "{image: a/b}",
		},
		"lxd that is off, and has content": {
			spec: "{image: a/b, lxd: {vmConfig: {diskSize: 61, network: n}}}", want: "{image: a/b}",
			findings: []string{"loss lxd.vmConfig.diskSize", "loss lxd.vmConfig.network"},
		},
		"a static address of bare metal": {
			spec: "{image: a/b, staticIP: {ip: 10.0.0.1, cidr: 10.0.0.0/8}}", want: "{image: a/b, staticIP: 10.0.0.1}", findings: []string{"note staticIP"},
		},
		"the subnet's data in MAAS": {
			spec: `{image: a/b, staticIP: {ip: "fd00::1", gateway: "fd00::2", nameservers: ["fd00::3"]}}`, want: `{image: a/b, staticIP: "fd00::1"}`,
			findings: []string{"loss staticIP.gateway", "loss staticIP.nameservers", "note staticIP"},
		},
	} {
		t.Run(name, func(t *testing.T) { checkMachine(t, tc.spec, tc.want, tc.findings) })
	}
}

func TestVirtualMachines(t *testing.T) {
	const vm = "{image: a/b, minCPU: 2, minMemory: 4096, "
	const as = "{image: a/b, minCPU: 2, minMemory: 4096, provisioningMode: lxd, "
	for name, tc := range map[string]struct {
		spec, want string
		findings   []string
	}{
		"the least": {
			spec: "{image: a/b, lxd: {enabled: true}}", want: "{image: a/b, provisioningMode: lxd}",
			findings: []string{"note minCPU", "note minMemory", "note minDiskSize"},
		},
		"the larger disk of the two":   {spec: vm + "minDiskSize: 30, lxd: {enabled: true, vmConfig: {diskSize: 20}}}", want: as + "minDiskSize: 30}"},
		"the larger one is vmConfig's": {spec: vm + "minDiskSize: 10, lxd: {enabled: true, vmConfig: {diskSize: 20}}}", want: as + "minDiskSize: 20}"},
		"a disk of 0": {
			spec: vm + "minDiskSize: 10, lxd: {enabled: true, vmConfig: {diskSize: 0}}}", want: as + "minDiskSize: 10}",
		},
		"the disk that was filled in": {
			spec: vm + "lxd: {enabled: true, vmConfig: {}}}", want: as + "minDiskSize: 60}", findings: []string{"note lxd.vmConfig.diskSize"},
		},
		"a storage pool": {
			spec: vm + "lxd: {enabled: true, vmConfig: {diskSize: 20, storagePool: p}}}", want: as + "minDiskSize: 20, lxdConfig: {storage: {pool: p}}}",
			findings: []string{"note lxd.vmConfig.storagePool"},
		},
		"in memory": {
			spec: vm + "minDiskSize: 20, deployInMemory: true, lxd: {enabled: true}}", want: as + "minDiskSize: 20}", findings: []string{"loss deployInMemory"},
		},
		"it does not start": {
			spec: vm + "lxd: {enabled: true, vmConfig: {diskSize: 20, autoStart: false}}}", want: as + "minDiskSize: 20}",
			findings: []string{"loss lxd.vmConfig.autoStart"},
		},
		"tags of the host": {spec: vm + "minDiskSize: 20, tags: [a, b], lxd: {enabled: true}}", want: as + "minDiskSize: 20, tags: [a, b]}"},
		"link modes alone": {
			spec: vm + "lxd: {enabled: true, vmConfig: {diskSize: 20, interfaceLinkModes: {eth0: dhcp}}}}", want: as + "minDiskSize: 20}",
			findings: []string{"loss lxd.vmConfig.interfaceLinkModes"},
		},
		"one subnet": {
			spec: vm + "lxd: {enabled: true, vmConfig: {diskSize: 20, network: 10.0.0.0/24}}}",
			want: as + "minDiskSize: 20, lxdConfig: {network: {devices: [{name: eth0, subnet: 10.0.0.0/24, linkMode: auto}]}}}",
			// No one else asks for their order of preference.
			findings: []string{"note lxd.vmConfig.network"},
		},
		"two subnets, and modes": {
			spec: vm + `lxd: {enabled: true, vmConfig: {diskSize: 20, network: "10.0.0.0/24, fd00::/64", interfaceLinkModes: {eth0: link_up, eth1: auto}}}}`,
			want: as + `minDiskSize: 20, lxdConfig: {network: {devices: [{name: eth0, subnet: 10.0.0.0/24, linkMode: link_up},
				{name: eth1, subnet: "fd00::/64", linkMode: auto}]}}}`,
			findings: []string{"note lxd.vmConfig.network"},
		},
		"the static address is on its subnet": {
			spec: vm + `staticIP: {ip: 10.0.1.5}, lxd: {enabled: true, vmConfig: {diskSize: 20, network: "10.0.0.0/24,10.0.1.0/24"}}}`,
			want: as + `staticIP: 10.0.1.5, minDiskSize: 20, lxdConfig: {network: {devices: [{name: eth0, subnet: 10.0.0.0/24, linkMode: auto},
				{name: eth1, subnet: 10.0.1.0/24, linkMode: static}]}}}`,
			findings: []string{"note lxd.vmConfig.network", "note staticIP"},
		},
	} {
		t.Run(name, func(t *testing.T) { checkMachine(t, tc.spec, tc.want, tc.findings) })
	}
}

// checkMachine converts a machine's spec as that of a MaasMachine and of a MaasMachineTemplate.
func checkMachine(t *testing.T, spec, want string, findings []string) {
	t.Helper()
	got, machine := outcome(t, manifest("MaasMachine", spec))
	checkOutcome(t, got, machine, prefixed(findings, "spec."), want)
	got, machine = outcome(t, manifest("MaasMachineTemplate", spec))
	checkOutcome(t, got, machine, prefixed(findings, "spec.template.spec."), "{template: {spec: "+want+"}}")
}

// prefixed puts a prefix before the path of each finding.
func prefixed(findings []string, prefix string) []string {
	var all []string
	for _, f := range findings {
		severity, path, _ := strings.Cut(f, " ")
		all = append(all, severity+" "+prefix+path)
	}
	return all
}

func TestNothingIsGuessedOfMachines(t *testing.T) {
	sentences := map[string]string{}
	for name, tc := range map[string]struct{ spec, path string }{
		"a field that nobody knows":          {"{image: a/b, minStorage: 5}", "minStorage"},
		"one of this provider":               {"{image: a/b, provisioningMode: lxd}", "provisioningMode"},
		"one that is there twice":            {"{image: a/b, minCPU: 1, minCPU: 2}", "minCPU"},
		"an unknown one in lxd":              {"{image: a/b, lxd: {project: p}}", "lxd.project"},
		"an unknown one in vmConfig":         {"{image: a/b, lxd: {enabled: true, vmConfig: {diskSize: 20, cores: 4}}}", "lxd.vmConfig.cores"},
		"an unknown one in staticIP":         {"{image: a/b, staticIP: {ip: 10.0.0.1, mtu: 1500}}", "staticIP.mtu"},
		"no image":                           {"{minCPU: 1}", "image"},
		"an empty image":                     {`{image: ""}`, "image"},
		"an image with too many parts":       {"{image: a/b/c}", "image"},
		"a variable":                         {"{image: '${IMAGE}'}", "image"},
		"a variable for a number":            {"{image: a/b, minCPU: '${CPU}'}", "minCPU"},
		"a number in quotes":                 {`{image: a/b, minMemory: "4096"}`, "minMemory"},
		"a number that is two numbers":       {"{image: a/b, minMemory: 010}", "minMemory"},
		"memory with a unit":                 {"{image: a/b, minMemory: 4Gi}", "minMemory"},
		"a fraction":                         {"{image: a/b, minMemory: 4096.5}", "minMemory"},
		"less than nothing":                  {"{image: a/b, minMemory: -1}", "minMemory"},
		"more than there is":                 {"{image: a/b, minMemory: 4294967296}", "minMemory"},
		"more cores than there are":          {"{image: a/b, minCPU: 4097}", "minCPU"},
		"a text that some read as true":      {"{image: a/b, deployInMemory: yes}", "deployInMemory"},
		"a number for a text":                {"{image: a/b, resourcePool: 7}", "resourcePool"},
		"tags that are no list":              {"{image: a/b, tags: ssd}", "tags"},
		"a tag that is no text":              {"{image: a/b, tags: [1]}", "tags"},
		"a tag that MAAS can't have":         {"{image: a/b, tags: [a b]}", "tags"},
		"lxd that is no mapping":             {"{image: a/b, lxd: true}", "lxd"},
		"lxd that may be on":                 {"{image: a/b, lxd: {enabled: 'true'}}", "lxd.enabled"},
		"a machine that is there":            {"{image: a/b, systemID: abc, providerID: 'maas:///z/abc'}", "providerID"},
		"memory in GB":                       {"{image: a/b, minMemory: 8}", "minMemory"},
		"too little memory for a VM":         {"{image: a/b, minCPU: 1, minMemory: 1024, minDiskSize: 8, lxd: {enabled: true}}", "minMemory"},
		"too small a disk for a VM":          {"{image: a/b, minCPU: 1, minMemory: 2048, minDiskSize: 7, lxd: {enabled: true}}", "minDiskSize"},
		"a storage pool that LXD can't have": {"{image: a/b, lxd: {enabled: true, vmConfig: {storagePool: a/b}}}", "lxd.vmConfig.storagePool"},
		"a subnet's name":                    {"{image: a/b, lxd: {enabled: true, vmConfig: {network: pxe}}}", "lxd.vmConfig.network"},
		"an address for a subnet":            {"{image: a/b, lxd: {enabled: true, vmConfig: {network: 10.0.0.1/24}}}", "lxd.vmConfig.network"},
		"three subnets":                      {"{image: a/b, lxd: {enabled: true, vmConfig: {network: '10.0.0.0/24,10.0.1.0/24,10.0.2.0/24'}}}", "lxd.vmConfig.network"},
		"a mode that MAAS can't have":        {"{image: a/b, lxd: {enabled: true, vmConfig: {network: 10.0.0.0/24, interfaceLinkModes: {eth0: none}}}}", "lxd.vmConfig.interfaceLinkModes.eth0"},
		"a mode of no interface":             {"{image: a/b, lxd: {enabled: true, vmConfig: {network: 10.0.0.0/24, interfaceLinkModes: {eth1: auto}}}}", "lxd.vmConfig.interfaceLinkModes"},
		"static without an address":          {"{image: a/b, lxd: {enabled: true, vmConfig: {network: 10.0.0.0/24, interfaceLinkModes: {eth0: static}}}}", "lxd.vmConfig.interfaceLinkModes"},
		"an address in no subnet":            {"{image: a/b, staticIP: {ip: 10.0.1.1}, lxd: {enabled: true, vmConfig: {network: 10.0.0.0/24}}}", "lxd.vmConfig.network"},
		"an address, and dhcp": {
			"{image: a/b, staticIP: {ip: 10.0.0.1}, lxd: {enabled: true, vmConfig: {network: 10.0.0.0/24, interfaceLinkModes: {eth0: dhcp}}}}",
			"lxd.vmConfig.interfaceLinkModes",
		},
		"a static address that is to come": {"{image: a/b, staticIP: {}}", "staticIP.ip"},
		"no address":                       {"{image: a/b, staticIP: {ip: 10.0.0}}", "staticIP.ip"},
		"an address of another network":    {"{image: a/b, staticIP: {ip: 10.0.0.1, cidr: 10.1.0.0/16}}", "staticIP.cidr"},
	} {
		sentences[name] = checkProblem(t, manifest("MaasMachine", tc.spec), "spec."+tc.path)
	}
	golden.Sentences(t, "convert-machines.txt", sentences)
}

// checkProblem returns what is said of a field for which an input is not converted.
func checkProblem(t *testing.T, input, path string) string {
	t.Helper()
	result := Convert([]byte(input))
	if result.Output != nil {
		t.Errorf("%s\nis converted:\n%s", input, result.Output)
	}
	for _, f := range result.Findings {
		if f.Severity == Problem && f.Path == path {
			return fmt.Sprintf("%d: %s", f.Line, f)
		}
	}
	t.Errorf("%s\nno error names %s: %v", input, path, result.Findings)
	return ""
}

func TestAMachineIsChosenByItsIDOnlyOutsideOfTemplates(t *testing.T) {
	const spec = "{image: a/b, systemID: abc123}"
	findings, got := outcome(t, manifest("MaasMachine", spec))
	checkOutcome(t, findings, got, []string{"note spec.systemID"}, spec)
	checkProblem(t, manifest("MaasMachineTemplate", spec), "spec.template.spec.systemID")
	checkProblem(t, manifest("MaasMachine", "{image: a/b, systemID: abc123, lxd: {enabled: true}}"), "spec.systemID")
}

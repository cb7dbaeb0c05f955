// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

func TestClusters(t *testing.T) {
	hosts := []string{"note spec.lxdConfig.storageSize", "note spec.lxdConfig.zone", "note spec.lxdConfig.resourcePool", "note spec.lxdControlPlaneCluster"}
	with := func(more ...string) []string { return append(more, hosts...) }
	for name, tc := range map[string]struct {
		spec, want string
		findings   []string
	}{
		"the least":     {"{dnsDomain: maas}", "{dnsDomain: maas}", []string{"note spec.failureDomains"}},
		"no zones":      {"{dnsDomain: maas, failureDomains: []}", "{dnsDomain: maas}", []string{"note spec.failureDomains"}},
		"a zone, twice": {"{dnsDomain: maas, failureDomains: [a, a]}", "{dnsDomain: maas, failureDomains: [a]}", nil},
		"an endpoint that is empty": {
			`{dnsDomain: maas, failureDomains: [a], controlPlaneEndpoint: {host: "", port: 0}}`, "{dnsDomain: maas, failureDomains: [a]}", nil,
		},
		"an endpoint that was written": {
			`{dnsDomain: maas, failureDomains: [a], controlPlaneEndpoint: {host: c-1a2b3c.maas, port: 6443}}`, "{dnsDomain: maas, failureDomains: [a]}",
			[]string{"loss spec.controlPlaneEndpoint"},
		},
		"lxdConfig that is off, as it was filled in": {
			`{dnsDomain: maas, failureDomains: [a], lxdConfig: {enabled: false, storageBackend: zfs, storageSize: "50", skipNetworkUpdate: true}}`,
			"{dnsDomain: maas, failureDomains: [a]}", nil,
		},
		"lxdConfig that is off, and has content": {
			"{dnsDomain: maas, failureDomains: [a], lxdConfig: {storageBackend: btrfs}}", "{dnsDomain: maas, failureDomains: [a]}",
			[]string{"loss spec.lxdConfig.storageBackend"},
		},
		"hosts": {
			`{dnsDomain: maas, failureDomains: [a], lxdConfig: {enabled: true, storageBackend: dir, storageSize: "7", zone: z, resourcePool: p, networkBridge: br1}}`,
			`{dnsDomain: maas, failureDomains: [a], lxdControlPlaneCluster: true,
				lxdConfig: {storageBackend: dir, storageSize: "7", zone: z, resourcePool: p, networkBridge: br1}}`, hosts,
		},
		"bridge and parent are the same": {
			"{dnsDomain: maas, failureDomains: [a], lxdConfig: {enabled: true, nicType: bridge, nicParent: br1, networkBridge: br1}}",
			"{dnsDomain: maas, failureDomains: [a], lxdControlPlaneCluster: true, lxdConfig: {networkBridge: br1}}", hosts,
		},
		"a parent": {
			"{dnsDomain: maas, failureDomains: [a], lxdConfig: {enabled: true, nicParent: br1}}",
			"{dnsDomain: maas, failureDomains: [a], lxdControlPlaneCluster: true, lxdConfig: {networkBridge: br1}}", with("note spec.lxdConfig.nicParent"),
		},
		"macvlan": {
			"{dnsDomain: maas, failureDomains: [a], lxdConfig: {enabled: true, nicType: macvlan, nicParent: eno1}}",
			"{dnsDomain: maas, failureDomains: [a], lxdControlPlaneCluster: true}", with("loss spec.lxdConfig.nicType", "loss spec.lxdConfig.nicParent"),
		},
		"networks are to be changed": {
			"{dnsDomain: maas, failureDomains: [a], lxdConfig: {enabled: true, skipNetworkUpdate: false}}",
			"{dnsDomain: maas, failureDomains: [a], lxdControlPlaneCluster: true}", with("loss spec.lxdConfig.skipNetworkUpdate"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings, spec := outcome(t, manifest("MaasCluster", tc.spec))
			checkOutcome(t, findings, spec, tc.findings, tc.want)
		})
	}
}

func TestAnEndpointOfTheUserStays(t *testing.T) {
	const spec = "{dnsDomain: maas, failureDomains: [a], controlPlaneEndpoint: {host: api.example.com, port: 8443}}"
	input := strings.Replace(manifest("MaasCluster", spec), "{name: x}", `{name: x, annotations: {spectrocloud.com/custom-dns-provided: ""}}`, 1)
	findings, got := outcome(t, input)
	checkOutcome(t, findings, got, nil, spec)
}

func TestNothingIsGuessedOfClusters(t *testing.T) {
	sentences := map[string]string{}
	for name, tc := range map[string]struct{ spec, path string }{
		"a field that nobody knows":    {"{dnsDomain: maas, region: r}", "region"},
		"one of this provider":         {"{dnsDomain: maas, lxdControlPlaneCluster: true}", "lxdControlPlaneCluster"},
		"an unknown one in lxdConfig":  {"{dnsDomain: maas, lxdConfig: {enabled: true, image: i}}", "lxdConfig.image"},
		"an unknown one in endpoint":   {"{dnsDomain: maas, controlPlaneEndpoint: {scheme: https}}", "controlPlaneEndpoint.scheme"},
		"no domain":                    {"{failureDomains: [a]}", "dnsDomain"},
		"a port that is none":          {"{dnsDomain: maas, controlPlaneEndpoint: {host: h, port: 70000}}", "controlPlaneEndpoint.port"},
		"an endpoint that is a text":   {"{dnsDomain: maas, controlPlaneEndpoint: api}", "controlPlaneEndpoint"},
		"zones that are no list":       {"{dnsDomain: maas, failureDomains: a}", "failureDomains"},
		"lxdConfig that may be on":     {"{dnsDomain: maas, lxdConfig: {enabled: 1}}", "lxdConfig.enabled"},
		"a backend that is not there":  {"{dnsDomain: maas, lxdConfig: {enabled: true, storageBackend: ceph}}", "lxdConfig.storageBackend"},
		"a size with a unit":           {"{dnsDomain: maas, lxdConfig: {enabled: true, storageSize: 50GB}}", "lxdConfig.storageSize"},
		"a size that is a number":      {"{dnsDomain: maas, lxdConfig: {enabled: true, storageSize: 50}}", "lxdConfig.storageSize"},
		"bridge and parent differ":     {"{dnsDomain: maas, lxdConfig: {enabled: true, nicParent: br1, networkBridge: br0}}", "lxdConfig.nicParent"},
		"an interface of another kind": {"{dnsDomain: maas, lxdConfig: {enabled: true, nicType: sriov}}", "lxdConfig.nicType"},
	} {
		sentences[name] = checkProblem(t, manifest("MaasCluster", tc.spec), "spec."+tc.path)
	}
	golden.Sentences(t, "convert-clusters.txt", sentences)
}

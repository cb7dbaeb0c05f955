// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
)

// What is changed of the bootstrap configuration replaces machines; what Cluster API sets by default, or changes on those
// that are there, does not.
func TestABootstrapConfigurationThatReplaces(t *testing.T) {
	t.Parallel()
	const controlPlane, workers = `
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp}
spec: {version: v1.35.0, kubeadmConfigSpec: `, `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md}
spec: {template: {spec: {version: v1.35.0, bootstrap: `
	for name, tc := range map[string]struct {
		begin, before, after string
		want                 bool
	}{
		"a command":           {controlPlane, "{preKubeadmCommands: [a]}", "{preKubeadmCommands: [a, b]}", true},
		"one less":            {controlPlane, "{preKubeadmCommands: [a, b]}", "{preKubeadmCommands: [a]}", true},
		"another value":       {controlPlane, "{diskSetup: {filesystems: [{device: a}]}}", "{diskSetup: {filesystems: [{device: b}]}}", true},
		"the first of all":    {controlPlane, "{}", "{files: [{path: /a}]}", true},
		"a default":           {controlPlane, "{format: cloud-config, users: [{name: a, inactive: false}]}", "{users: [{name: a}]}", false},
		"a value for none":    {controlPlane, "{}", `{format: "", verbosity: 0, files: [], ntp: {}, mounts: null}`, false},
		"where DNS is":        {controlPlane, "{}", "{clusterConfiguration: {dns: {imageTag: v1}}}", false},
		"how a node joins":    {controlPlane, "{}", "{joinConfiguration: {discovery: {tlsBootstrapToken: a}}}", false},
		"another template":    {workers, "{configRef: {name: a}}", "{configRef: {name: b}}", true},
		"another secret":      {workers, "{dataSecretName: a}", "{dataSecretName: b}", true},
		"the same template":   {workers, "{configRef: {name: a, apiGroup: b}}", "{configRef: {name: a}}", false},
		"no template, but it": {workers, "{dataSecretName: a}", "{configRef: {name: a}}", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owners := func(text string) controlplane.Owner {
				end := strings.Repeat("}", strings.Count(tc.begin, "spec: {")+strings.Count(tc.begin, "template: {"))
				objects, err := Decode(strings.NewReader(tc.begin+text+end), "ns")
				if err != nil || len(objects) != 1 {
					t.Fatal(objects, err)
				}
				return controlplane.Owner{Unstructured: objects[0]}
			}
			if got := differs(owners(tc.before), owners(tc.after)); got != tc.want {
				t.Errorf("its machines are replaced: %t, want %t", got, tc.want)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

func TestStreamsThatStayAsTheyAre(t *testing.T) {
	for name, input := range map[string]string{
		"nothing":                     "",
		"comments":                    "# a\n---\n# b\n",
		"empty documents":             "---\n---\n\n---\nnull\n",
		"another kind":                "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: |\n    x\n     --- y\n",
		"line ends of Windows":        "---\r\napiVersion: v1\r\nkind: ConfigMap\r\n---\r\napiVersion: v1\r\nkind: ConfigMap\r\n",
		"no newline at the end":       "apiVersion: v1\nkind: ConfigMap",
		"anchors in another kind":     "apiVersion: v1\nkind: ConfigMap\ndata: {a: &a b, c: *a}\n",
		"our own MaasClusterTemplate": "apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: MaasClusterTemplate\nspec:  {}\n",
		"another group's MaasCluster": "apiVersion: example.com/v1\nkind: MaasCluster\nspec:  {}\n",
		"another provider's v1alpha3": "apiVersion: bootstrap.cluster.x-k8s.io/v1alpha3\nkind: TalosConfigTemplate\n",
		"an empty List":               "apiVersion: v1\nkind: List\nitems:  []\n",
		"a ConfigMap on one line":     "--- {apiVersion: v1, kind: ConfigMap}\n",
		"a MaasCluster as it was": "--- # c\napiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: MaasCluster\nmetadata: {name:  x}\n" +
			"spec: {dnsDomain:  maas, failureDomains: [a]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			result := Convert([]byte(input))
			if len(result.Findings) > 0 || string(result.Output) != input {
				t.Errorf("%q becomes %q: %v", input, result.Output, result.Findings)
			}
		})
	}
}

func TestDocumentsThatAreNotUnderstood(t *testing.T) {
	const ours = "apiVersion: infrastructure.cluster.x-k8s.io/"
	sentences := map[string]string{}
	for name, tc := range map[string]struct {
		input, path string
	}{
		"no YAML":               {"# a\n---\nb: [ ${ X } ]\n", ""},
		"no object":             {"---\n\n- 1\n", ""},
		"no kind":               {"apiVersion: v1\n", ""},
		"two in one":            {"a: 1\n...\nb: 2\n", ""},
		"a version of nobody":   {ours + "v1beta2\nkind: MaasCluster\nspec: {dnsDomain: maas}\n", "apiVersion"},
		"a list of one kind":    {ours + "v1beta1\nkind: MaasClusterList\nitems: []\n", "kind"},
		"an anchor":             {ours + "v1beta1\nkind: MaasCluster\nspec: &a {dnsDomain: maas}\n", ""},
		"a tag":                 {ours + "v1beta1\nkind: MaasCluster\nspec: {dnsDomain: !!str maas}\n", ""},
		"no spec":               {ours + "v1beta1\nkind: MaasMachineTemplate\n", "spec"},
		"a field beside spec":   {ours + "v1beta1\nkind: MaasCluster\nspec: {dnsDomain: maas}\ndata: {}\n", "data"},
		"a field in template":   {ours + "v1beta1\nkind: MaasMachineTemplate\nspec: {template: {metadata: {}, spec: {image: i}}}\n", "spec.template.metadata"},
		"a field in metadata":   {ours + "v1beta1\nkind: MaasCluster\nmetadata: {nam: x}\nspec: {dnsDomain: maas}\n", "metadata.nam"},
		"a label that is true":  {ours + "v1beta1\nkind: MaasCluster\nmetadata: {labels: {a: true}}\nspec: {dnsDomain: maas, failureDomains: [a]}\n", ""},
		"an item of a List":     {"apiVersion: v1\nkind: List\nitems:\n- 1\n", "items"},
		"an object that goes":   {ours + "v1beta1\nkind: MaasCluster\nmetadata: {deletionTimestamp: x}\nspec: {dnsDomain: maas}\n", "metadata"},
		"a second of a stream":  {"---\n# c\n---\n" + ours + "v1beta1\nkind: MaasCluster\nspec: {domain: maas}\n", "spec.domain"},
		"one within a document": {ours + "v1beta1\n\n\nkind: MaasCluster\nspec:\n  # c\n  dnsDomain: true\n", "spec.dnsDomain"},
	} {
		sentences[name] = checkProblem(t, tc.input, tc.path)
	}
	golden.Sentences(t, "convert-documents.txt", sentences)
}

func TestCommentsStay(t *testing.T) {
	input := `---
# above
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha4 # was alpha
kind: MaasMachineTemplate
metadata:
  name: x # its name
spec:
  template:
    spec:
      # the image
      image: i # built here
      # VMs
      lxd: {enabled: true}
      minCPU: 2
      # below
`
	output := string(Convert([]byte(input)).Output)
	for _, comment := range []string{"# above", "# was alpha", "# its name", "# the image", "# built here", "# VMs", "# below"} {
		if !strings.Contains(output, comment) {
			t.Errorf("%s is gone:\n%s", comment, output)
		}
	}
	if output == input {
		t.Error("nothing is converted")
	}
}

func TestListsKeepTheirIndentation(t *testing.T) {
	const compact = "apiVersion: infrastructure.cluster.x-k8s.io/v1alpha4\nkind: MaasCluster\nspec:\n  dnsDomain: maas\n  failureDomains:\n  - a\n"
	for _, input := range []string{compact, strings.Replace(compact, "  - a", "    - a", 1)} {
		want := strings.Replace(input, "v1alpha4", "v1beta1", 1)
		if got := string(Convert([]byte(input)).Output); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestALineInNoYAMLIsThatOfTheStream(t *testing.T) {
	result := Convert([]byte(strings.Repeat("# a\n", 40) + "---\nb: [ ${ X } ]\n"))
	if len(result.Findings) != 1 || !strings.Contains(result.Findings[0].Text, "line 4") {
		t.Errorf("no error is near line 42: %v", result.Findings)
	}
}

func TestWhatStaysAndHasToBeChangedByHandIsALoss(t *testing.T) {
	for name, tc := range map[string]struct{ input, path string }{
		"an object of Cluster API that is too old": {
			"apiVersion: controlplane.cluster.x-k8s.io/v1alpha4\nkind: KubeadmControlPlane\n", "apiVersion",
		},
		"a reference": {
			"apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nspec: {infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1alpha4, kind: MaasCluster}}\n",
			"spec.infrastructureRef.apiVersion",
		},
		"a reference in a list": {
			"apiVersion: example.com/v1\nkind: Any\nspec: {refs: [{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha3, kind: MaasMachineTemplate}]}\n",
			"spec.refs[0].apiVersion",
		},
		"the endpoint of a Cluster that lives": {
			"apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nspec: {controlPlaneEndpoint: {host: c.maas, port: 6443}, infrastructureRef: {kind: MaasCluster}}\n",
			"spec.controlPlaneEndpoint.host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			result := Convert([]byte(tc.input))
			if string(result.Output) != tc.input {
				t.Errorf("it does not stay: %s", result.Output)
			}
			if len(result.Findings) != 1 || result.Findings[0].Severity != Loss || result.Findings[0].Path != tc.path {
				t.Errorf("want one loss at %s: %v", tc.path, result.Findings)
			}
		})
	}
}

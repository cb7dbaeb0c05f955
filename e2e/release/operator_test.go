// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/capi"
)

const coreProvider = `apiVersion: v1
kind: Namespace
metadata: {name: capi-system}
---
apiVersion: operator.cluster.x-k8s.io/v1alpha2
kind: CoreProvider
metadata: {name: cluster-api, namespace: capi-system}
spec: {version: ` + coreVersion + `}
`

// installByOperator has the Cluster API Operator install the documented objects, upgrade the provider, and remove it.
func (p *publisher) installByOperator(t *testing.T) {
	box := p.start(t)
	p.startOperator(t, box)
	p.apply(t, coreProvider)
	p.wait(t, "coreproviders/cluster-api", "capi-system", "condition=Ready")

	p.use(t, before)
	ours := strings.NewReplacer("http://maas.example.com:5240/MAAS", box.MAASURL, "CONSUMER:TOKEN:SECRET", box.MAASAPIKey)
	p.apply(t, ours.Replace(documentedObjects(t)))
	p.wait(t, "infrastructureproviders/maas", sandbox.Namespace, "condition=Ready")
	p.checkManager(t, box, before)

	p.use(t, version)
	p.must(t, "", "kubectl", "--namespace", sandbox.Namespace, "patch", "infrastructureproviders", "maas", "--type=merge",
		"--patch", `{"spec": {"version": "`+version+`"}}`)
	p.wait(t, "infrastructureproviders/maas", sandbox.Namespace, "jsonpath={.status.installedVersion}="+version)
	p.checkManager(t, box, version)

	p.must(t, "", "kubectl", "--namespace", sandbox.Namespace, "delete", "infrastructureproviders", "maas", "--timeout=3m")
}

// startOperator runs the operator, which reaches the API server and the stand-ins alone, until the test ends.
func (p *publisher) startOperator(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	running, err := capi.StartExternal(t.Context(), capi.ExternalOptions{
		Config: box.RESTConfig, Kubeconfig: box.KubeconfigPath, Proxy: p.proxy, Programs: p.tools, Env: os.Environ(),
		ModuleDir: filepath.Join(repositoryRoot, "hack", "tools", "operator"), Dir: t.TempDir(), LogDir: box.LogDir,
	}, []capi.External{{
		Name: "capi-operator", Module: "sigs.k8s.io/cluster-api-operator", CertificateFlag: "--webhook-cert-dir",
		Env: []string{"HOME=" + t.TempDir(), "SSL_CERT_FILE=" + p.authority, "GOPROXY=https://" + moduleProxy},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// documentedObjects are those that the page on clusterctl has for the operator.
func documentedObjects(t *testing.T) string {
	t.Helper()
	page := string(read(t, filepath.Join(repositoryRoot, "docs", "clusterctl.md")))
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if strings.Contains(block[1], "kind: InfrastructureProvider\n") {
			return block[1]
		}
	}
	t.Fatal("docs/clusterctl.md has no InfrastructureProvider")
	return ""
}

func (p *publisher) wait(t *testing.T, object, namespace, condition string) {
	t.Helper()
	out, err := p.run(t, "", "kubectl", "--namespace", namespace, "wait", object, "--for="+condition, "--timeout=3m")
	if err != nil {
		status, _ := p.run(t, "", "kubectl", "--namespace", namespace, "get", object, "--output=yaml")
		t.Fatalf("%s: %v\n%s\n%s", object, err, out, status)
	}
}

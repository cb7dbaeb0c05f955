// SPDX-License-Identifier: Apache-2.0

package clusterctl_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	version, nextVersion = "v0.1.0", "v0.1.1"
	coreVersion          = "v1.14.2"
	documentedURL        = "https://github.com/capmaas/cluster-api-provider-maas/releases/latest/infrastructure-components.yaml"
)

// install makes the provider known to clusterctl, and installs and upgrades it in the east.
func install(t *testing.T, s *document.Shell) {
	repository := filepath.Join(s.Dir, "repository")
	writeReleases(t, repository, version, nextVersion)
	s.Write(t, filepath.Join("cluster-api", "clusterctl.yaml"), configuration(t, repository), 0o600)
	if got, want := s.Run(t, "known"), filepath.Join(repository, "infrastructure-maas"); !strings.Contains(got, want) || strings.Contains(got, "spectrocloud") {
		t.Errorf("clusterctl takes the provider from %s, want from %s", got, want)
	}

	installCertManagerKinds(t)
	if _, err := east.RunPods(t.Context(), sandbox.Namespace); err != nil { // The sandbox stops it.
		t.Fatal(err)
	}
	s.Set("MAAS_ENDPOINT", east.MAASURL)
	s.Set("MAAS_API_KEY", keyOf(t, eastUser))
	s.Set("MAAS_NAMESPACES", "*")
	s.Run(t, "init")
	checkCRDs(t, east)
	checkCRDs(t, west)
	plan := s.Run(t, "upgrade")
	if !regexp.MustCompile(`infrastructure-maas\s+\S+\s+\S+\s+` + version + `\s+` + nextVersion).MatchString(plan) {
		t.Errorf("the plan does not tell of %s:\n%s", nextVersion, plan)
	}
	manager := &appsv1.Deployment{}
	if err := east.Client.Get(t.Context(), client.ObjectKey{Namespace: sandbox.Namespace, Name: "capmaas-controller-manager"}, manager); err != nil {
		t.Fatal(err)
	}
	if image := manager.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, nextVersion) {
		t.Errorf("the manager's image is %s, want %s", image, nextVersion)
	}
}

// writeReleases writes releases as `make manifests` does, with values that fit the sandbox in the east.
func writeReleases(t *testing.T, repository string, versions ...string) {
	t.Helper()
	site := east.Values()
	delete(site, "maas") // clusterctl fills in the credentials.
	values, err := yaml.Marshal(site)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, program := filepath.Join(dir, "values.yaml"), filepath.Join(dir, "manifests")
	if err := os.WriteFile(file, values, 0o600); err != nil {
		t.Fatal(err)
	}
	commands := [][]string{{"go", "build", "-ldflags=-s -w", "-o", program, "./hack/manifests"}}
	for _, version := range versions {
		commands = append(commands, []string{program, "--out", repository, "--version", version, "--values", file})
	}
	for _, arguments := range commands {
		command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
		command.Dir = repositoryRoot
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("hack/manifests: %v\n%s", err, out)
		}
	}
}

// configuration is the document's, with the repository in the place of GitHub, and with Cluster API as releases that
// have nothing in them: it runs in the sandbox already, and clusterctl is to know it.
func configuration(t *testing.T, repository string) []byte {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), documentedURL) {
		t.Fatalf("the document does not name %s", documentedURL)
	}
	var providers strings.Builder
	fmt.Fprintf(&providers, "providers:\n- {name: maas, type: InfrastructureProvider, url: %s/infrastructure-maas/%s/infrastructure-components.yaml}\n", repository, nextVersion)
	for _, p := range []struct{ name, kind, dir, file string }{
		{"cluster-api", "CoreProvider", "cluster-api", "core-components.yaml"},
		{"kubeadm", "BootstrapProvider", "bootstrap-kubeadm", "bootstrap-components.yaml"},
		{"kubeadm", "ControlPlaneProvider", "control-plane-kubeadm", "control-plane-components.yaml"},
	} {
		dir := filepath.Join(repository, p.dir, coreVersion)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			p.file:          "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + p.dir + "-system}\n",
			"metadata.yaml": "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries: [{major: 1, minor: 14, contract: v1beta2}]\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&providers, "- {name: %s, type: %s, url: %s}\n", p.name, p.kind, filepath.Join(dir, p.file))
	}
	return []byte(providers.String())
}

// installCertManagerKinds makes clusterctl find a cert-manager: it only checks that the API server accepts a
// certificate.
func installCertManagerKinds(t *testing.T) {
	t.Helper()
	var crds []*apiextensionsv1.CustomResourceDefinition
	for kind, plural := range map[string]string{"Issuer": "issuers", "Certificate": "certificates"} {
		crds = append(crds, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".cert-manager.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "cert-manager.io", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
					},
				}},
			},
		})
	}
	if _, err := envtest.InstallCRDs(east.RESTConfig, envtest.CRDInstallOptions{CRDs: crds, MaxTime: eventually.Limit}); err != nil {
		t.Fatal(err)
	}
}

// checkCRDs checks that our kinds have the label by which clusterctl moves them, however they were installed.
func checkCRDs(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := box.Client.List(t.Context(), list, client.HasLabels{"clusterctl.cluster.x-k8s.io"},
		client.MatchingLabels{"cluster.x-k8s.io/provider": "infrastructure-maas"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 7 {
		t.Errorf("clusterctl knows %d of our kinds, want 7", len(list.Items))
	}
}

func keyOf(t *testing.T, user string) string {
	t.Helper()
	for _, u := range west.MAAS.Users() {
		if u.Name == user {
			return u.Keys[0]
		}
	}
	t.Fatalf("MAAS has no user %s", user)
	return ""
}

// writes returns the calls since a moment that changed something in MAAS, by operation and user.
func writes(since int) map[string]int {
	made := map[string]int{}
	for _, call := range west.MAAS.Calls().Log {
		if call.Number > since && call.Method != http.MethodGet && call.Status < http.StatusBadRequest {
			made[call.User+": "+call.Method+" "+call.Endpoint+" "+call.Op]++
		}
	}
	return made
}

// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"
)

var (
	listedName    = regexp.MustCompile(`ProviderName = "([^"]+)"`)
	listedURL     = regexp.MustCompile(`url: +"https://github\.com/([^/]+)/([^/]+)/releases/latest/([^"]+)"`)
	listedType    = regexp.MustCompile(`providerType: clusterctlv1\.(\w+)`)
	bookLink      = regexp.MustCompile(`(?m)^- \[[^\]]+\]\(https://github\.com/([^)]+)\)$`)
	bookLabel     = regexp.MustCompile(`cluster\.x-k8s\.io/provider=infrastructure-(\S+)`)
	moduleOf      = regexp.MustCompile(`(?m)^module github\.com/(\S+)$`)
	variable      = regexp.MustCompile(`\$\{\w+\}?`)
	namespaceFlag = regexp.MustCompile(`StringVar\([^,]+, "namespace"`)
)

// What is to be handed in to Cluster API names this project, and files that a release has, under a name that clusterctl
// accepts and does not have; and what clusterctl installs under that name fulfils its contract.
func TestListing(t *testing.T) {
	t.Parallel()
	page := string(source(t, "docs/listing.md"))
	name, url := only(t, listedName, page)[1], only(t, listedURL, page)
	module := only(t, moduleOf, string(source(t, "go.mod")))[1]
	for what, got := range map[string]string{"clusterctl's list": url[1] + "/" + url[2], "the book": only(t, bookLink, page)[1]} {
		if got != module {
			t.Errorf("%s: the repository is %s, want %s", what, got, module)
		}
	}
	if got := only(t, bookLabel, page)[1]; got != name {
		t.Errorf("the book's label is that of %q, want %q", got, name)
	}
	if got := only(t, listedType, page)[1]; got != "InfrastructureProviderType" {
		t.Errorf("the type is %s", got)
	}
	if name != url[1] && !strings.HasPrefix(name, url[1]+"-") {
		t.Errorf("the name %q does not begin with that of the organization %s", name, url[1])
	}
	dir := listed(t, name)
	if _, err := os.Stat(filepath.Join(dir, "infrastructure-"+name, version, url[3])); err != nil {
		t.Errorf("the file of the URL is not in a release: %v", err)
	}
	known, err := clusterctl(t, repository(t), nil, "config", "repositories")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(known)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name && fields[1] == "InfrastructureProvider" {
			t.Errorf("clusterctl has a provider %s already: %s", name, line)
		}
	}
	checkContract(t, dir, name)
}

// listed is a clusterctl repository in which the provider has another name.
func listed(t *testing.T, name string) string {
	t.Helper()
	dir := repository(t)
	from, to := filepath.Join(dir, "infrastructure-maas"), filepath.Join(dir, "infrastructure-"+name)
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "clusterctl.yaml")
	content, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	content = []byte(strings.NewReplacer("name: maas", "name: "+name, from, to).Replace(string(content)))
	if err := os.WriteFile(config, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkContract generates the provider under its name, and checks what clusterctl's contract wants and no other test
// does.
func checkContract(t *testing.T, dir, name string) {
	t.Helper()
	variables := map[string]string{"MAAS_ENDPOINT": "http://maas.example.com:5240/MAAS", "MAAS_API_KEY": "a:b:c"}
	out, err := clusterctl(t, dir, variables, "generate", "provider", "--infrastructure", name+":"+version)
	if err != nil {
		t.Fatal(err)
	}
	objects := mustParse(t, out)
	for _, o := range objects {
		if got := o.GetLabels()["cluster.x-k8s.io/provider"]; got != "infrastructure-"+name {
			t.Errorf("%s %s is labelled as of provider %q", o.GetKind(), o.GetName(), got)
		}
	}
	manager := appsv1.Deployment{}
	convert(t, ofKind(objects, "Deployment")[0], &manager)
	if got := manager.Spec.Template.Spec.Containers[0].Name; got != "manager" {
		t.Errorf("the container is called %q, want manager", got)
	}
	metadata := clusterctlv1.Metadata{}
	if err := yaml.UnmarshalStrict(source(t, "metadata.yaml"), &metadata); err != nil {
		t.Fatal(err)
	}
	contract := metadata.ReleaseSeries[len(metadata.ReleaseSeries)-1].Contract
	for _, crd := range ofKind(objects, "CustomResourceDefinition") {
		labels := crd.GetLabels()
		if _, moved := labels["clusterctl.cluster.x-k8s.io"]; !moved || labels["cluster.x-k8s.io/"+contract] == "" {
			t.Errorf("the CRD %s has the labels %v: want those of the contract %s, and of clusterctl move", crd.GetName(), labels, contract)
		}
	}
	if found := variable.Find(source(t, "clusterclass/clusterclass-capmaas.yaml")); found != nil {
		t.Errorf("the ClusterClass has the variable %s", found)
	}
	if !namespaceFlag.Match(source(t, "cmd/manager/options.go")) {
		t.Error("the manager has no flag --namespace")
	}
}

// source is a file of this project.
func source(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(sources, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// only returns the one match in a text.
func only(t *testing.T, pattern *regexp.Regexp, text string) []string {
	t.Helper()
	found := pattern.FindAllStringSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("%d matches of %s, want 1", len(found), pattern)
	}
	return found[0]
}

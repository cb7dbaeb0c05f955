// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The kubelet reads what is in the directory of static pods' manifests at any time, and what a change of them restarts is
// gone for a while. Whatever a flavor or a class puts there, it moves there as a whole.
func TestNoManifestIsEditedWhereTheKubeletReadsIt(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	sets := map[string]string{}
	for _, flavor := range allFlavors() {
		out, err := generate(t, dir, flavor, "default", map[string]string{
			"MAAS_DNS_DOMAIN": "maas", "MAAS_IMAGE": "ubuntu/noble", "MAAS_VIRTUAL_IP_SUBNET": virtualIPSubnet,
		})
		if err != nil {
			t.Fatal(err)
		}
		sets["flavor "+flavor] = string(out)
	}
	classes, err := filepath.Glob(filepath.Join(sources, "clusterclass", "*.yaml"))
	if err != nil || len(classes) == 0 {
		t.Fatalf("classes: %v, %v", classes, err)
	}
	for _, path := range classes {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sets[filepath.Base(path)] = string(content)
	}
	moved := map[string]int{}
	for name, set := range sets {
		for _, o := range mustParse(t, []byte(set)) {
			moved[name] += checkManifestCommands(t, name+", "+o.GetKind()+" "+o.GetName(), o.Object)
		}
	}
	for _, name := range []string{"flavor " + kubeVIPFlavor, "clusterclass-capmaas.yaml"} {
		if moved[name] != 1 {
			t.Errorf("%s: %d manifests are moved into the kubelet's directory, want kube-vip's", name, moved[name])
		}
	}
}

var (
	manifestsMade  = regexp.MustCompile(`^mkdir --parents /etc/kubernetes/manifests$`)
	manifestsMoved = regexp.MustCompile(`^mv /etc/kubernetes/[a-z-]+\.yaml /etc/kubernetes/manifests/$`)
)

// checkManifestCommands finds each line that names the directory, in whatever field, and counts the files moved there.
func checkManifestCommands(t *testing.T, where string, value any) (moved int) {
	t.Helper()
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			moved += checkManifestCommands(t, where+"."+key, below)
		}
	case []any:
		for _, below := range value {
			moved += checkManifestCommands(t, where, below)
		}
	case string:
		for line := range strings.Lines(value) {
			line = strings.TrimSpace(line)
			switch {
			case !strings.Contains(line, "/etc/kubernetes/manifests"), manifestsMade.MatchString(line):
			case manifestsMoved.MatchString(line):
				moved++
			default:
				t.Errorf("%s touches what the kubelet reads: %s", where, line)
			}
		}
	}
	return moved
}

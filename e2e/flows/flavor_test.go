// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

const (
	repositoryRoot  = "../.."
	providerVersion = "v0.1.0"
	virtualIPSubnet = "10.77.0.0/24"
)

// generate makes the real clusterctl generate a cluster of a flavor, from the repository that `make manifests` writes.
func generate(t *testing.T, name, flavor string, controlPlanes, workers string) string {
	t.Helper()
	bin := os.Getenv("CAPMAAS_BIN")
	if bin == "" {
		t.Fatal("CAPMAAS_BIN is not set: it is the directory of clusterctl (`make test` builds it and sets it)")
	}
	dir := t.TempDir()
	write := exec.CommandContext(t.Context(), "go", "run", "./hack/manifests", "--out", dir, "--version", providerVersion)
	write.Dir = repositoryRoot
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("hack/manifests: %v\n%s", err, out)
	}
	clusterctl := exec.CommandContext(t.Context(), filepath.Join(bin, "clusterctl"), "--config", filepath.Join(dir, "clusterctl.yaml"),
		"generate", "cluster", name, "--infrastructure", "maas:"+providerVersion, "--flavor", flavor, "--target-namespace", life.Namespace,
		"--kubernetes-version", kubernetesVersion, "--control-plane-machine-count", controlPlanes, "--worker-machine-count", workers)
	clusterctl.Env = []string{
		"HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"MAAS_DNS_DOMAIN=" + dnsDomain, "MAAS_IMAGE=" + image,
		"MAAS_VIRTUAL_IP_SUBNET=" + virtualIPSubnet,
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL=" + pool, "WORKER_MACHINE_RESOURCEPOOL=" + pool,
	}
	clusterctl.Stderr = t.Output()
	manifest, err := clusterctl.Output()
	if err != nil {
		t.Fatalf("clusterctl generate cluster: %v", err)
	}
	return string(manifest)
}

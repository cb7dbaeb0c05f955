// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The helm that the tools build takes the cluster for one of its own Kubernetes, as a released helm does, and the chart accepts
// that: it needs no --kube-version.
func TestTheToolHelmRendersTheChart(t *testing.T) {
	if out, err := helmTool(t, "template", "capmaas", chartDir); err != nil {
		t.Errorf("helm template: %v\n%s", err, out)
	}
}

// helmTool runs the helm that the tools build on the management cluster.
func helmTool(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	bin := os.Getenv("CAPMAAS_BIN")
	if bin == "" {
		t.Fatal("CAPMAAS_BIN is not set: it is the directory of helm (`make test` builds it and sets it)")
	}
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "helm"), arguments...)
	command.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + management.kubeconfig}
	out, err := command.CombinedOutput()
	return string(out), err
}

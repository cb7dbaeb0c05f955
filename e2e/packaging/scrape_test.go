// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/program"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
)

// The manager, with the rights that the chart gives it, serves the metrics that its alerts begin with.
func TestTheManagerServesItsMetrics(t *testing.T) {
	manager, err := program.Build(t.Context(), sources, "manager")
	if err != nil {
		t.Fatalf("building the manager: %v", err)
	}
	namespace := newNamespace(t)
	machine := &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nobodys"},
		Spec:       infrav1.MaasMachineSpec{Image: "ubuntu/noble"},
	}
	if err := management.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	address := reservedAddress(t)
	startManager(t, manager, "--namespace="+namespace, "--leader-elect", "--leader-election-namespace="+releaseNamespace,
		// A busy API server does not end the manager.
		"--leader-elect-lease-duration=5m", "--leader-elect-renew-deadline=4m",
		"--health-addr=127.0.0.1:0", "--insecure-diagnostics", "--diagnostics-address="+address, "--maas-config-dir="+t.TempDir())
	for _, want := range []string{
		`leader_election_master_status{name="capmaas-controller-manager"} 1`,
		`capmaas_build_info{goversion="`,
		`capmaas_machines{cluster="` + namespace + `/",mode="bare-metal",reason="`, // The reason soon is another one.
		`capmaas_machines_not_ready_since_timestamp_seconds{cluster="` + namespace + `/",mode="bare-metal",reason="`,
	} {
		eventually.Succeeds(t, "the manager serves "+want, func(ctx context.Context) error {
			served, err := scrape(ctx, "http://"+address+"/metrics")
			if err == nil && !strings.Contains(served, want) {
				err = fmt.Errorf("it is not among the metrics")
			}
			return err
		})
	}
}

// reservedAddress returns an address that no other process is given.
func reservedAddress(t *testing.T) string {
	t.Helper()
	reserved, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reserved.Close(); err != nil {
			t.Error(err)
		}
	})
	return reserved.Address()
}

// startManager runs the manager as its ServiceAccount until the test ends, and shows its log when the test fails.
func startManager(t *testing.T, manager string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	command := exec.CommandContext(t.Context(), manager, args...)
	command.Env = []string{"KUBECONFIG=" + kubeconfigOf(t, releaseNamespace, "capmaas-manager")}
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Wait() // It was killed: the test's context ended.
		if t.Failed() {
			t.Logf("the manager's log:\n%s", log.String())
		}
	})
}

func scrape(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s responds %s", url, response.Status)
	}
	return string(body), err
}

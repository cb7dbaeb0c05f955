// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// k3sUserData is as cluster-api-k3s writes it for a machine that joins, with a configuration.
func k3sUserData(command, config string) *userData {
	return &userData{
		files:    map[string]string{k3sConfigFile: config},
		commands: []string{"true", "curl -sfL https://get.k3s.io | INSTALL_K3S_VERSION=v1.35.0+k3s1 sh -s - " + command + " && echo success"},
	}
}

func TestReadK3s(t *testing.T) {
	run, err := readInstaller(k3sUserData("agent", `
kubelet-arg: [node-ip=10.0.0.1]
node-label: [a=b, c=d]
node-name: metal-a1
node-taint: [dedicated=gpu:NoSchedule]
server: https://c1.maas.sim:6443
token: secret
`))
	if err != nil {
		t.Fatal(err)
	}
	registration := run.registration()
	if run.founds() || run.controlPlane() || run.endpoint() != "c1.maas.sim:6443" || registration.Name != "metal-a1" {
		t.Errorf("run = %+v", run)
	}
	if got := registration.KubeletExtraArgs; got["node-ip"] != "10.0.0.1" || got["node-labels"] != "a=b,c=d" {
		t.Errorf("arguments = %v", got)
	}
	if got := *registration.Taints; len(got) != 1 || got[0] != (corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}) {
		t.Errorf("taints = %v", got)
	}
	if got, err := run.version(t.Context(), "u-2404-k8s-1.30", nil); err != nil || got != "v1.35.0+k3s1" {
		t.Errorf("version = %q, %v, want the one that is installed", got, err)
	}
	if err := run.admit(t.Context(), &cluster{founder: &k3sRun{config: k3sConfig{Token: "other"}}}); !errors.Is(err, errRefused) {
		t.Errorf("with another token: %v, want %v", err, errRefused)
	}
	if err := run.admit(t.Context(), &cluster{founder: &k3sRun{config: k3sConfig{Token: "secret"}}}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if _, err := readInstaller(k3sUserData("server", "cluster-init: true")); err == nil || errors.Is(err, errNoInstaller) {
		t.Errorf("without certificates: %v", err)
	}
}

// A kubelet that waits for a cloud controller taints its Node, unless the cluster has one, which then gives it a
// provider ID.
func TestWhoWaitsForACloudController(t *testing.T) {
	for name, tt := range map[string]struct {
		config, cloud, providerID string
		tainted                   bool
	}{
		"no controller, and none is waited for": {config: "disable-cloud-controller: true"},
		"none, and it is waited for":            {config: "{disable-cloud-controller: true, kubelet-arg: [cloud-provider=external]}", tainted: true},
		"k3s's own":                             {config: "kubelet-arg: [cloud-provider=external]", cloud: "k3s", providerID: "k3s://metal-a1"},
	} {
		t.Run(name, func(t *testing.T) {
			run, err := readK3s(k3sUserData("server", tt.config))
			if err != nil {
				t.Fatal(err)
			}
			plan, err := run.plan()
			if err != nil || plan.cloud != tt.cloud {
				t.Errorf("the cloud controller is %q, want %q (%v)", plan.cloud, tt.cloud, err)
			}
			m := newMember(&cluster{clusterPlan: plan, founder: run}, run, machine, "v1.35.0+k3s1")
			node := m.newNode()
			if node.Spec.ProviderID != tt.providerID {
				t.Errorf("the provider ID is %q, want %q", node.Spec.ProviderID, tt.providerID)
			}
			if tainted := len(node.Spec.Taints) > 0; tainted != tt.tainted {
				t.Errorf("the Node is tainted: %t, want %t", tainted, tt.tainted)
			}
			if !strings.HasPrefix(node.Annotations[k3sMember], "metal-a1-") {
				t.Errorf("the etcd member is %q", node.Annotations[k3sMember])
			}
		})
	}
}

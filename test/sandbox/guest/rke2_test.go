// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
)

func TestReadRKE2(t *testing.T) {
	run, err := readInstaller(&userData{
		files: map[string]string{rke2ConfigFile: `
server: https://api.maas.sim:9345
token: secret
node-label: [a=b]
node-taint: ["only=mine:NoSchedule"]
kubelet-arg: ["--provider-id=maas://zone-a/abc"]
`},
		commands: []string{
			`curl -sfL https://get.rke2.io | INSTALL_RKE2_VERSION=v1.35.0+rke2r1 INSTALL_RKE2_TYPE="agent" sh -s -`,
			"systemctl enable rke2-agent.service", "systemctl start rke2-agent.service",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if run.founds() || run.controlPlane() || run.endpoint() != "api.maas.sim:9345" {
		t.Errorf("run = %+v", run)
	}
	if version, err := run.version(t.Context(), "ubuntu/noble", nil); err != nil || version != "v1.35.0+rke2r1" {
		t.Errorf("version = %s, %v", version, err)
	}
	want := nodeRegistration{
		Taints:           &[]corev1.Taint{{Key: "only", Value: "mine", Effect: corev1.TaintEffectNoSchedule}},
		KubeletExtraArgs: kubeletArgs{"provider-id": "maas://zone-a/abc", "node-labels": "a=b"},
	}
	if diff := cmp.Diff(want, run.registration(), cmp.AllowUnexported(nodeRegistration{})); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
	if err := run.admit(t.Context(), &cluster{founder: &rke2Run{config: rke2Config{Token: "another"}}}); !errors.Is(err, errRefused) {
		t.Errorf("with another token: %v, want %v", err, errRefused)
	}
	if err := run.admit(t.Context(), &cluster{founder: &kubeadmRun{}}); !errors.Is(err, errRefused) {
		t.Errorf("kubeadm's cluster: %v, want %v", err, errRefused)
	}
}

// Without a command that installs it, RKE2 is the image's.
func TestVersionOfInstalledRKE2(t *testing.T) {
	run := &rke2Run{}
	if version, err := run.version(t.Context(), "u-2204-k8s-1.35", nil); err != nil || version != "v1.35.0+rke2r1" {
		t.Errorf("version = %s, %v", version, err)
	}
	if version, err := run.version(t.Context(), "ubuntu/noble", nil); !errors.Is(err, errNoRKE2) {
		t.Errorf("without any: %s, %v, want %v", version, err, errNoRKE2)
	}
}

// A server's etcd member leaves when its Node is marked for that.
func TestRKE2RemovesAMember(t *testing.T) {
	m, _ := newControlPlane(t)
	c := m.cluster
	c.founder = &rke2Run{server: true}
	c.react(m.node)
	if members, err := c.etcdMembers(); err != nil || len(members) != 1 {
		t.Errorf("before: members %v, %v, want one", members, err)
	}
	node := &corev1.Node{}
	node.Name = m.node
	if err := change(c.objects, node, func() { node.Annotations = map[string]string{rke2RemoveMember: "true"} }); err != nil {
		t.Fatal(err)
	}
	c.react(m.node)
	pod := &corev1.Pod{}
	if err := c.pods.Get(t.Context(), key("kube-system", m.etcdPod()), pod); err != nil {
		t.Fatal(err)
	}
	if _, left := pod.Annotations[cloudv1.EtcdMemberRemoved]; !left {
		t.Error("the member is still in etcd")
	}
	if err := c.objects.Get(t.Context(), key("", m.node), node); err != nil || node.Annotations[rke2RemovedMember] == "" {
		t.Errorf("the Node does not say so: %v, %v", node.Annotations, err)
	}
}

// The provider ID of a Node is the cloud controller's, where it runs and the kubelet has none.
func TestProviderIDOfRKE2sCloudController(t *testing.T) {
	for _, tt := range []struct {
		disabled bool
		args     []string
		want     string
	}{
		{disabled: false, want: "rke2://metal-a1"},
		{disabled: true, want: ""},
		{disabled: false, args: []string{"provider-id=maas://zone-a/abc"}, want: "maas://zone-a/abc"},
	} {
		run := &rke2Run{server: true, config: rke2Config{DisableCloudController: tt.disabled, KubeletArgs: tt.args}}
		plan, err := run.plan()
		if err != nil {
			t.Fatal(err)
		}
		m := &member{cluster: &cluster{clusterPlan: plan}, node: "metal-a1", registration: run.registration()}
		if got := m.newNode().Spec.ProviderID; got != tt.want {
			t.Errorf("disabled: %v, arguments %v: %q, want %q", tt.disabled, tt.args, got, tt.want)
		}
	}
}

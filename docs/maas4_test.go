// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
)

const serverCertificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

// What an operator types before MAAS is upgraded, and after it, finds and changes what the page says.
func TestTheCommandsBeforeMAAS4(t *testing.T) {
	api, kubeconfig := apiServer(t)
	shell := document.Open(t, "maas-4.md", "KUBECONFIG="+kubeconfig)
	if err := os.WriteFile(filepath.Join(shell.Dir, "server.crt"), []byte(serverCertificate), 0o600); err != nil {
		t.Fatal(err)
	}
	host, node := vmHosts(t, api)
	for step, want := range map[string]string{
		"hosts":  `(?m)^capmaas-system +lxd-a +1 +<none> +<none>$(?s:.*)^hosts +node-1 +2 +hosts-md-0-x +<none>$`,
		"rights": `^yes\n`,
		"pins":   `(?m)^hosts +pinned +LXD-A$`,
		"keys":   `(?m)^hosts +own-key +theirs$(?s:.*)^hosts +cp-0 +lxd-a$`,
	} {
		if got := shell.Run(t, step); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %s\nwant %s", step, got, want)
		}
	}
	shell.Run(t, "prepare")
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
		t.Fatal(err)
	}
	if s := host.Spec; s.Address == "" || s.ServerCertificate != serverCertificate || s.CredentialsRef == nil || s.VMHost == nil {
		t.Errorf("the LXDHost is prepared as %+v", s)
	}
	for _, h := range []*infrav1.LXDHost{host, node} {
		for _, condition := range []string{infrav1.ReadyCondition, infrav1.KeysCurrentCondition} {
			conditions.Set(h, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: infrav1.ReadyReason})
		}
		if err := api.Status().Update(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []string{"ready", "current"} {
		if got := shell.Run(t, step); !strings.Contains(got, "/lxd-a condition met") || !strings.Contains(got, "/node-1 condition met") {
			t.Errorf("%s: %s", step, got)
		}
	}
}

// vmHosts makes the LXDHosts of two VM hosts, of which a host cluster's machine is one, and what uses them.
func vmHosts(t *testing.T, api client.Client) (own, node *infrav1.LXDHost) {
	t.Helper()
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	vmHost := func(namespace, name string, id int64) *infrav1.LXDHost {
		return &infrav1.LXDHost{ObjectMeta: meta(namespace, name), Spec: infrav1.LXDHostSpec{VMHost: &infrav1.VMHostReference{ID: id, SystemID: "abc123"}}}
	}
	own, node = vmHost("capmaas-system", "lxd-a", 1), vmHost("hosts", "node-1", 2)
	machine := &infrav1.MaasMachine{ObjectMeta: meta("hosts", "hosts-md-0-x"), Spec: infrav1.MaasMachineSpec{Image: "i"}}
	template := &infrav1.MaasMachineTemplate{ObjectMeta: meta("hosts", "pinned")}
	template.Spec.Template.Spec = infrav1.MaasMachineSpec{
		Image: "i", ProvisioningMode: infrav1.ProvisioningModeLXD, LXDConfig: &infrav1.LXDMachineConfig{VMHost: "LXD-A"},
	}
	vm := &infrav1.MaasMachine{ObjectMeta: meta("hosts", "cp-0"), Spec: infrav1.MaasMachineSpec{Image: "i", ProvisioningMode: infrav1.ProvisioningModeLXD}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: meta("", "capmaas-system")}, &corev1.Namespace{ObjectMeta: meta("", "hosts")}, own, machine, template, vm,
		&infrav1.MaasCluster{ObjectMeta: meta("hosts", "own-key"), Spec: infrav1.MaasClusterSpec{DNSDomain: "maas", CredentialsRef: &infrav1.LocalObjectReference{Name: "theirs"}}},
	} {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	// Without its owner, the garbage collector would delete it.
	node.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: infrav1.GroupVersion.String(), Kind: "MaasMachine", Name: machine.Name, UID: machine.UID},
	}
	if err := api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	vm.Status.LXDHost = "lxd-a"
	if err := api.Status().Update(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	return own, node
}

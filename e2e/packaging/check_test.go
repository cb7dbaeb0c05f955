// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capmaas/cluster-api-provider-maas/test/program"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// checkPod is the pod of helm test.
func checkPod(t *testing.T, v values) corev1.Pod {
	t.Helper()
	rendered, err := render(releaseNamespace, v)
	if err != nil {
		t.Fatal(err)
	}
	if len(rendered.Hooks) != 1 {
		t.Fatalf("the chart has %d hooks, want the one of helm test", len(rendered.Hooks))
	}
	pod := corev1.Pod{}
	convert(t, mustParse(t, []byte(rendered.Hooks[0].Manifest))[0], &pod)
	return pod
}

// kubeconfigOf writes a kubeconfig with a token of a ServiceAccount, and returns its path.
func kubeconfigOf(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := management.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{"pod": {Token: request.Status.Token}}
	config.Contexts[config.CurrentContext].AuthInfo = "pod"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// The command of helm test, run as a process with the files and the ServiceAccount of its pod: there is no kubelet
// here.
func TestHelmTestProvesCredentialsAndCRDs(t *testing.T) {
	const key = "admin:token:hush"
	region, err := simulator.LoadRegion(strings.NewReader(`users: [{name: root, admin: true, keys: ["` + key + `"]}]`))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(region, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	manager, err := program.Build(t.Context(), sources, "manager")
	if err != nil {
		t.Fatalf("building the manager: %v", err)
	}

	for name, tt := range map[string]struct {
		key, path string
		good      bool
		want      string
	}{
		"good key":     {key, "/MAAS", true, "ok     MAAS"},
		"wrong key":    {"other:token:hush", "/MAAS", false, "FAILED MAAS: " + server.URL + "/MAAS: MAAS refuses the API key: "},
		"another path": {key, "/other", false, "a server responds, but it has no users/: the chart's value maas.endpoint is the URL of MAAS's web interface up to /MAAS"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := checkPod(t, values{"maas": values{"endpoint": server.URL + tt.path, "apiKey": tt.key}})
			container := pod.Spec.Containers[0]
			files := t.TempDir()
			for mount, content := range map[string]string{"credentials/apiKey": tt.key, "config/maasEndpoint": server.URL + tt.path} {
				mounted := false
				for _, m := range container.VolumeMounts {
					mounted = mounted || m.MountPath == "/etc/capmaas/"+filepath.Dir(mount)
				}
				if !mounted {
					t.Errorf("the pod does not mount /etc/capmaas/%s", filepath.Dir(mount))
				}
				if err := os.MkdirAll(filepath.Join(files, filepath.Dir(mount)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(files, mount), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if container.Command[0] != "/manager" {
				t.Fatalf("the pod runs %s; the image has /manager", container.Command[0])
			}
			var args []string
			for _, arg := range append(container.Command[1:], container.Args...) {
				args = append(args, strings.ReplaceAll(arg, "/etc/capmaas", files))
			}
			command := exec.CommandContext(t.Context(), manager, args...)
			command.Env = []string{"KUBECONFIG=" + kubeconfigOf(t, releaseNamespace, pod.Spec.ServiceAccountName)}
			out, err := command.CombinedOutput()
			if (err == nil) != tt.good {
				t.Errorf("it ends with %v, want success: %t", err, tt.good)
			}
			for _, want := range []string{"ok     Kubernetes", tt.want} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output does not have %q:\n%s", want, out)
				}
			}
		})
	}
}

// The test's pod is not taken for a manager: it would get the Service's requests, and count in a budget.
func TestTheCheckIsNotAmongTheManagersPods(t *testing.T) {
	pod := checkPod(t, nil)
	selector := deployment(t, nil).Spec.Selector.MatchLabels
	for name, value := range selector {
		if pod.Labels[name] != value {
			return
		}
	}
	t.Errorf("the Deployment's selector %v selects the pod of helm test, with labels %v", selector, pod.Labels)
}

// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	oldKey = "Vq7TzR2mXc9LpW4nKs:c9WmQ4tLzX2vBnRk:Zp8sDf3GhJ6kLqW1eRtY5uIoPaXcVb7N"
	newKey = "Hd3NbG8yUe6JtF5rMa:Lk2JhG5fDs8ApQ3w:Yt7ReWqUiOpMnBvCxZlKjHgFdSaQw4Er"

	elsewhere = `
users: [{name: admin, admin: true, keys: ["` + oldKey + `", "` + newKey + `"]}]
zones: [{name: cellar}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.88.0.0/24, gateway: 10.88.0.1, dhcp: true, dynamic_ranges: [{start: 10.88.0.200, end: 10.88.0.254}]}]
images: [{name: ubuntu/jammy}]
vm_hosts: [{name: lxd-cellar, zone: cellar, cores: 16, memory: 65536, storage_pools: [{name: default, type: zfs, size: 500}]}]
`
)

// deletionTimeout is within which a cluster is deleted.
const deletionTimeout = 3 * time.Minute

// anotherMAAS is a second region beside the sandbox's.
type anotherMAAS struct {
	*simulator.Simulator
	endpoint string
	handler  http.Handler

	mu   sync.Mutex
	used bool // that newKey was used
	// revoked is whether oldKey is a key no more.
	revoked bool
}

func startAnotherMAAS(t *testing.T) *anotherMAAS {
	t.Helper()
	description, err := simulator.LoadRegion(strings.NewReader(elsewhere))
	if err != nil {
		t.Fatal(err)
	}
	region := &anotherMAAS{}
	if region.Simulator, err = simulator.New(description, simulator.Options{TimeScale: 300}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(region.Close)
	region.handler = region.Handler()
	server := httptest.NewServer(region)
	t.Cleanup(server.Close)
	region.endpoint = server.URL + "/MAAS"
	return region
}

// ServeHTTP makes the region refuse oldKey once it was revoked.
func (a *anotherMAAS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	was, _, _ := strings.Cut(oldKey, ":")
	is, _, _ := strings.Cut(newKey, ":")
	with := r.Header.Get("Authorization")
	a.mu.Lock()
	a.used = a.used || strings.Contains(with, is)
	if a.revoked {
		r.Header.Set("Authorization", strings.ReplaceAll(with, was, "revoked"))
	}
	a.mu.Unlock()
	a.handler.ServeHTTP(w, r)
}

// rotate acts like an operator who has put newKey into the Secret: when that is in use, the old one is revoked.
func (a *anotherMAAS) rotate(l *life.Life) {
	l.Helper()
	l.Wait("the new key to be used", func() (bool, string, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.revoked = a.used
		return a.used, "it is not", nil
	})
}

// Two clusters with their own credentials, in two regions: each has its machines in its own region, and changes of
// one's Secret don't affect the other. The manager is never restarted.
func TestCredentialsPerCluster(t *testing.T) {
	there := startAnotherMAAS(t)
	before, restarts := there.State(), managerStarts(t)
	key := client.ObjectKey{Namespace: life.Namespace, Name: "there"}
	deleteSecrets(t, "here", "here-maas", "there", "there-maas") // After the clusters, which need them.
	l := life.Begin(t, box, "here")
	setCredentials(l, "here", box.MAASURL, box.MAASAPIKey)
	setCredentials(l, "there", there.endpoint, oldKey)
	l.Create(withCredentials(l.Key))
	applyCluster(l, key)
	waitProvisioned(l, l.Key)
	waitProvisioned(l, key)
	ready := readySince(l, l.Key)
	for name, region := range map[string]*simulator.Simulator{"here": box.MAAS, "there": there.Simulator} {
		vms := 0
		for _, m := range region.Machines() {
			if m.VMHost == "" {
				continue
			}
			if vms++; !strings.HasPrefix(m.Hostname, name) {
				t.Errorf("the region of %s has the VM %s", name, m.Hostname)
			}
		}
		if vms != 1 {
			t.Errorf("the region of %s has %d VMs, want one", name, vms)
		}
	}

	step(l, "RotatedKey", func(l *life.Life) {
		setCredentials(l, "there", there.endpoint, newKey)
		there.rotate(l)
	})
	step(l, "WrongKey", func(l *life.Life) {
		setCredentials(l, "there", there.endpoint, newKey+"0")
		waitInvalid(l, key, "")
	})
	step(l, "MissingSecret", func(l *life.Life) {
		secret := secretNamed("there-maas") // It stays for as long as the cluster, unless by force.
		force := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`))
		if err := errors.Join(box.Client.Delete(l.Context(), secret), box.Client.Patch(l.Context(), secret, force)); err != nil {
			l.Fatal(err)
		}
		waitInvalid(l, key, "there-maas")
	})
	step(l, "MendedSecret", func(l *life.Life) {
		setCredentials(l, "there", there.endpoint, newKey)
		waitProvisioned(l, key)
	})
	if diff := cmp.Diff(ready, readySince(l, l.Key)); diff != "" {
		t.Errorf("the other cluster was not ready all the time (-before +after):\n%s", diff)
	}
	if err := box.DeleteCluster(l.Within(deletionTimeout), key); err != nil {
		t.Fatal(err)
	}
	left, err := ledger.Remains(before, there.State())
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left in the other region (- before, + after):\n%s", strings.Join(left, "\n"))
	}
	l.Delete()
	if diff := cmp.Diff(restarts, managerStarts(t)); diff != "" {
		t.Errorf("the manager was started again (-before +after):\n%s", diff)
	}
}

// withCredentials is a cluster of one VM.
func withCredentials(key client.ObjectKey) string {
	return sandbox.Plain{Key: key, Credentials: key.Name + "-maas"}.Manifest(sandbox.PlainMachine{Spec: "provisioningMode: lxd, image: ubuntu/jammy"})
}

// applyCluster makes a cluster that is not a life's own; the test deletes it.
func applyCluster(l *life.Life, key client.ObjectKey) {
	l.Helper()
	l.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), deletionTimeout)
		defer cancel()
		if err := box.DeleteCluster(ctx, key); err != nil {
			l.Errorf("cleaning up: %v", err)
		}
	})
	if err := box.ApplyYAML(l.Within(time.Minute), strings.NewReader(withCredentials(key))); err != nil {
		l.Fatal(err)
	}
}

func secretNamed(name string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: life.Namespace, Name: name},
	}
}

// setCredentials writes the Secret that a cluster's credentialsRef names.
func setCredentials(l *life.Life, cluster, endpoint, key string) {
	l.Helper()
	secret := secretNamed(cluster + "-maas")
	secret.Data = map[string][]byte{scope.EndpointKey: []byte(endpoint), scope.APIKeyKey: []byte(key)}
	raw, err := json.Marshal(secret)
	if err != nil {
		l.Fatal(err)
	}
	if err := box.ApplyYAML(l.Within(time.Minute), bytes.NewReader(raw)); err != nil {
		l.Fatal(err)
	}
}

// deleteSecrets deletes Secrets when the test ends.
func deleteSecrets(t *testing.T, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, name := range names {
			if err := box.Client.Delete(context.WithoutCancel(t.Context()), secretNamed(name)); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
}

// infrastructure returns a cluster's MaasCluster and MaasMachine, which have its name.
func infrastructure(l *life.Life, key client.ObjectKey) (*infrav1.MaasCluster, *infrav1.MaasMachine, error) {
	l.Helper()
	cluster, machine := &infrav1.MaasCluster{}, &infrav1.MaasMachine{}
	if err := box.Client.Get(l.Context(), key, cluster); err != nil {
		return nil, nil, err
	}
	return cluster, machine, box.Client.Get(l.Context(), key, machine)
}

// waitProvisioned waits until a cluster and its only machine are Ready.
func waitProvisioned(l *life.Life, key client.ObjectKey) {
	l.Helper()
	l.Wait(key.Name+" to be provisioned", func() (bool, string, error) {
		cluster, machine, err := infrastructure(l, key)
		if err != nil {
			return false, "", client.IgnoreNotFound(err)
		}
		done := ptr.Deref(machine.Status.Initialization.Provisioned, false) &&
			conditions.IsTrue(machine, infrav1.ReadyCondition) && conditions.IsTrue(cluster, infrav1.ReadyCondition)
		return done, sandbox.Conditions(append(cluster.Status.Conditions, machine.Status.Conditions...)), nil
	})
}

// waitInvalid waits until a cluster and its machine report that the credentials are unusable, and name the Secret.
func waitInvalid(l *life.Life, key client.ObjectKey, name string) {
	l.Helper()
	l.Wait(key.Name+" to say that its credentials are of no use", func() (bool, string, error) {
		cluster, machine, err := infrastructure(l, key)
		if err != nil {
			return false, "", err
		}
		done := true
		for _, object := range []conditions.Getter{cluster, machine} {
			ready := conditions.Get(object, infrav1.ReadyCondition)
			done = done && ready.Status != metav1.ConditionTrue && ready.Reason == infrav1.CredentialsInvalidReason && strings.Contains(ready.Message, name)
		}
		return done, sandbox.Conditions(append(cluster.Status.Conditions, machine.Status.Conditions...)), nil
	})
}

// readySince is since when a cluster and its machine have been Ready, or have not.
func readySince(l *life.Life, key client.ObjectKey) []string {
	l.Helper()
	cluster, machine, err := infrastructure(l, key)
	if err != nil {
		l.Fatal(err)
	}
	var since []string
	for _, object := range []conditions.Getter{cluster, machine} {
		ready := conditions.Get(object, infrav1.ReadyCondition)
		since = append(since, fmt.Sprintf("%T %s since %s", object, ready.Status, ready.LastTransitionTime.UTC().Format(time.RFC3339)))
	}
	return since
}

// managerStarts are how often the containers of the manager's pods were started again.
func managerStarts(t *testing.T) map[string]int32 {
	t.Helper()
	pods := &corev1.PodList{}
	if err := box.Client.List(t.Context(), pods, client.InNamespace(box.Manager.Namespace)); err != nil {
		t.Fatal(err)
	}
	restarts := map[string]int32{}
	for _, pod := range pods.Items {
		for _, container := range pod.Status.ContainerStatuses {
			restarts[pod.Name+"/"+container.Name] = container.RestartCount
		}
	}
	return restarts
}

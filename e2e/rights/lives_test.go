// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

const (
	// metricsPort is the chart's.
	metricsPort = 8443
	// vmHost is one of the sandbox's region.
	vmHost = "lxd-a1"
)

// leadOwn runs a cluster that needs all rights of the manager except those for its Nodes: it has its own credentials,
// and one VM that boots into nothing, with an address of a pool. Meanwhile the manager's process ends, so that the next
// one takes the lease over, the VM is given up, VMs are lost, LXDHosts are changed, and a machine is kept.
func leadOwn(l *life.Life) {
	makeOwn(l)
	giveUp(l)
	loseVMs(l)
	changeLXDHosts(l)
	keepOne(l)
	removeOwn(l)
}

func makeOwn(l *life.Life) {
	l.Helper()
	for _, object := range []client.Object{credentials(l), pool(l)} {
		if err := l.Box.Client.Create(l.Within(shortTimeout), object); err != nil {
			l.Fatal(err)
		}
	}
	own := sandbox.Plain{Key: l.Key, Credentials: l.Key.Name + "-maas"}
	ref := ipam.Ref(l.Key.Name)
	l.Apply(own.Manifest(sandbox.PlainMachine{Spec: fmt.Sprintf(
		"provisioningMode: lxd, image: ubuntu/jammy, staticIPPoolRef: {apiGroup: %s, kind: %s, name: %s}", ref.APIGroup, ref.Kind, ref.Name)}))
	if err := l.Box.Kubelet.Kill(sandbox.ManagerContainer); err != nil {
		l.Error(err)
	}
	l.Wait("cluster and machine to be ready", func() (bool, string, error) {
		cluster, machine := &infrav1.MaasCluster{}, &infrav1.MaasMachine{}
		for _, object := range []client.Object{cluster, machine} {
			if err := l.Box.Client.Get(l.Context(), l.Key, object); err != nil {
				return false, err.Error(), client.IgnoreNotFound(err)
			}
		}
		done := conditions.IsTrue(cluster, infrav1.ReadyCondition) && conditions.IsTrue(machine, infrav1.ReadyCondition)
		return done, sandbox.Conditions(append(cluster.Status.Conditions, machine.Status.Conditions...)), nil
	})
}

// giveUp has the VM remedied. A restart would not help what was never a Node: its Machine is handed over to its owner.
func giveUp(l *life.Life) {
	l.Helper()
	machine := &clusterv1.Machine{}
	if err := l.Box.Client.Get(l.Context(), l.Key, machine); err != nil {
		l.Fatal(err)
	}
	remediation := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: machine.Namespace, Name: machine.Name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID},
	}}}
	if err := l.Box.Client.Create(l.Context(), remediation); err != nil {
		l.Fatal(err)
	}
	l.Wait("the Machine to be handed over", func() (bool, string, error) {
		err := l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(remediation), remediation)
		return conditions.IsTrue(remediation, infrav1.HandedOverCondition), sandbox.Conditions(remediation.Status.Conditions), err
	})
	if err := l.Box.Client.Delete(l.Context(), remediation); err != nil {
		l.Error(err)
	}
}

// keepOne has a machine kept for the next Machine, and given back because its MachineDeployment goes.
func keepOne(l *life.Life) {
	l.Helper()
	own, key := sandbox.Plain{Key: l.Key}, client.ObjectKey{Namespace: l.Key.Namespace, Name: l.Key.Name + "-kept"}
	l.Apply(own.Deployment(key.Name) + own.Machines(sandbox.PlainMachine{
		Name: key.Name, Worker: true, Deployment: key.Name, Spec: "image: ubuntu/jammy, resourcePool: capi, release: {keep: {}}",
	}))
	maasMachine := &infrav1.MaasMachine{}
	l.Wait("the machine to be ready", func() (bool, string, error) {
		err := l.Box.Client.Get(l.Context(), key, maasMachine)
		return conditions.IsTrue(maasMachine, infrav1.ReadyCondition), sandbox.Conditions(maasMachine.Status.Conditions), client.IgnoreNotFound(err)
	})
	waitKept := func(want int) {
		l.Helper()
		l.Wait(fmt.Sprintf("%d machines to be kept", want), func() (bool, string, error) {
			cluster := &infrav1.MaasCluster{}
			if err := l.Box.Client.Get(l.Context(), l.Key, cluster); err != nil {
				return false, "", err
			}
			recorded, err := record.OfCluster(cluster)
			return len(recorded.Kept) == want, fmt.Sprint(len(recorded.Kept)), err
		})
	}
	for i, object := range []client.Object{&clusterv1.Machine{}, &clusterv1.MachineDeployment{}} {
		object.SetNamespace(key.Namespace)
		object.SetName(key.Name)
		if err := l.Box.Client.Delete(l.Context(), object); err != nil {
			l.Fatal(err)
		}
		waitKept(1 - i)
	}
	l.Wait("the machine to be given back", func() (bool, string, error) {
		m, _ := l.Box.MAAS.Machine(maasMachine.Spec.SystemID)
		return m.Status == "Ready", m.Status, nil
	})
}

func removeOwn(l *life.Life) {
	l.Helper()
	l.Delete()
	for _, object := range []client.Object{credentials(l), pool(l)} {
		if err := l.Box.Client.Delete(l.Context(), object); err != nil {
			l.Error(err)
		}
	}
}

func pool(l *life.Life) client.Object { return ipam.NewPool(l.Key.Namespace, l.Key.Name, "10.77.0.60") }

// credentials is the Secret that the cluster's credentialsRef names.
func credentials(l *life.Life) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name + "-maas"},
		Data:       map[string][]byte{scope.EndpointKey: []byte(l.Box.MAASURL), scope.APIKeyKey: []byte(l.Box.MAASAPIKey)},
	}
}

// loseVMs makes two VMs in MAAS that carry the cluster's mark and that no object claims, until an audit has reported
// them: the second one in the same event.
func loseVMs(l *life.Life) {
	l.Helper()
	cluster := &infrav1.MaasCluster{}
	if err := l.Box.Client.Get(l.Context(), l.Key, cluster); err != nil {
		l.Fatal(err)
	}
	region, err := maas.NewClient(maas.Config{Endpoint: l.Box.MAASURL, APIKey: l.Box.MAASAPIKey})
	if err != nil {
		l.Fatal(err)
	}
	hosts, err := region.ListVMHosts(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	at := slices.IndexFunc(hosts, func(h maas.VMHost) bool { return h.Name == vmHost })
	if at < 0 {
		l.Fatalf("there is no VM host %s", vmHost)
	}
	for _, name := range []string{"lost-1", "lost-2"} {
		vm, err := region.Compose(l.Context(), maas.Unrecorded("a test"), hosts[at].ID, maas.ComposeParams{
			Hostname: maas.Hostname(name, cluster.Annotations[infrav1.OwnerIDAnnotation]), Cores: 1, Memory: 1024, Storage: "root:8",
			ZoneID: hosts[at].Zone.ID, PoolID: hosts[at].Pool.ID, SkipCommissioning: true,
		})
		if err != nil {
			l.Fatal(err)
		}
		defer func() {
			if err := region.DeleteMachine(context.WithoutCancel(l.Context()), maas.Unrecorded("a test"), vm); err != nil {
				l.Error(err)
			}
		}()
	}
	l.Wait("an event for each of both VMs", func() (bool, string, error) {
		list := &eventsv1.EventList{}
		err := l.Box.Client.List(l.Context(), list, client.InNamespace(l.Key.Namespace))
		told := map[string]bool{}
		for _, e := range list.Items {
			if e.Action == "Audit" && e.Regarding.Name == l.Key.Name {
				told[e.Note] = true
			}
		}
		return len(told) >= 2, fmt.Sprintf("%d events", len(list.Items)), err
	})
}

// changeLXDHosts changes the LXDHost of a VM host, and makes one for a VM host that MAAS does not have, until the manager
// has mended both.
func changeLXDHosts(l *life.Life) {
	l.Helper()
	var changed *infrav1.LXDHost
	l.Wait("the VM hosts to have LXDHosts", func() (bool, string, error) {
		list := &infrav1.LXDHostList{}
		err := l.Box.Client.List(l.Context(), list, client.InNamespace(sandbox.Namespace))
		for i := range list.Items {
			if conditions.IsTrue(&list.Items[i], infrav1.ReadyCondition) {
				changed = &list.Items[i]
			}
		}
		return changed != nil, fmt.Sprintf("%d LXDHosts", len(list.Items)), err
	})
	zone, before := changed.Spec.Zone, changed.DeepCopy()
	changed.Spec.Zone = "elsewhere"
	if err := l.Box.Client.Patch(l.Context(), changed, client.MergeFrom(before)); err != nil {
		l.Fatal(err)
	}
	extra := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: sandbox.Namespace, Name: "extra", Annotations: map[string]string{infrav1.MAASAnnotation: changed.Annotations[infrav1.MAASAnnotation]},
	}}
	extra.Spec.VMHost = &infrav1.VMHostReference{ID: 4711}
	if err := l.Box.Client.Create(l.Context(), extra); err != nil {
		l.Fatal(err)
	}
	l.Wait("the LXDHosts to be as MAAS has them", func() (bool, string, error) {
		err := l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(changed), changed)
		gone := apierrors.IsNotFound(l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(extra), extra))
		return gone && changed.Spec.Zone == zone, "zone " + changed.Spec.Zone, err
	})
}

// leadHost runs a host cluster of one machine, and compares the rights of the initializer there with those that it
// used.
func leadHost(l *life.Life) {
	createHost(l, "")
	l.Available(1)
	waitHost(l)
	nodes := l.Box.HostNodes()
	if len(nodes) != 1 {
		l.Fatalf("%d nodes run, want one", len(nodes))
	}
	there, err := client.New(nodes[0].Config, client.Options{Scheme: l.Box.Client.Scheme()})
	if err != nil {
		l.Fatal(err)
	}
	granted := grantedTo(l.T, there, nodes[0].Config, initializer)
	changeKeys(l, there, nodes[0])
	l.Delete()
	uses := usesOf(l.T, rights.Open(l.Box.HostAuditLog(l.Key.Name)), initializer)
	check(l.T, initializer, granted, uses, unusedByInitializer)
}

// leadHostWithoutVMHosts runs a host cluster of one machine after MAAS was upgraded to a version without VM hosts.
func leadHostWithoutVMHosts(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	if err := box.MAAS.Upgrade("4.0"); err != nil {
		t.Fatal(err)
	}
	l := life.Begin(t, box, "direct")
	createHost(l, keyOf(t, box, nodesUser))
	hosts := &infrav1.LXDHostList{}
	l.Wait("the node to be an LXDHost", func() (bool, string, error) {
		cluster := &infrav1.MaasCluster{}
		if err := l.Box.Client.Get(l.Context(), l.Key, cluster); err != nil {
			return false, "", err
		}
		err := l.Box.Client.List(l.Context(), hosts, client.InNamespace(l.Key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: l.Key.Name})
		return len(hosts.Items) == 1, sandbox.Conditions(cluster.Status.Conditions), err
	})
	// The manager does not reach the node's network here, and nobody can tell whether there are VMs: a person lets it go.
	letGo := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"annotations":{"`+clusterv1.PausedAnnotation+`":""},"finalizers":null}}`))
	if err := l.Box.Client.Patch(l.Context(), &hosts.Items[0], letGo); err != nil {
		l.Fatal(err)
	}
	l.Delete()
	usesOf(t, rights.Open(l.Box.HostAuditLog(l.Key.Name)), initializer)
	nothingForbidden(t, box, nodesUser)
}

// createHost makes a host cluster of one machine, whose nodes have the MAAS key of a Secret, or the cluster's.
func createHost(l *life.Life, credentials string) {
	l.Helper()
	manifest, err := l.Box.Flavor("lxd-host", map[string]string{
		"NAMESPACE": l.Key.Namespace, "CLUSTER_NAME": l.Key.Name, "KUBERNETES_VERSION": "v1.35.0",
		"MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": "u-2204-k8s-1.35", "LXD_STORAGE_BACKEND": "dir",
		"CONTROL_PLANE_MACHINE_COUNT": "1", "CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi",
		"WORKER_MACHINE_COUNT": "0", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	})
	if err != nil {
		l.Fatal(err)
	}
	if credentials != "" {
		manifest = strings.Replace(manifest, "lxdConfig:\n", "lxdConfig:\n    credentialsRef: {name: "+credentials+"}\n", 1)
	}
	l.Create(manifest)
}

// waitHost waits until the node is an LXD host.
func waitHost(l *life.Life) {
	l.Helper()
	l.Wait("the node to be a VM host", func() (bool, string, error) {
		cluster := &infrav1.MaasCluster{}
		err := l.Box.Client.Get(l.Context(), l.Key, cluster)
		return conditions.IsTrue(cluster, infrav1.LXDReadyCondition), sandbox.Conditions(cluster.Status.Conditions), err
	})
}

// changeKeys changes the Secret with the node's key pair to that of an earlier Node of the same name, and then to an
// unusable one. Each time the initializer is restarted, so that it checks at once.
func changeKeys(l *life.Life, there client.Client, node sandbox.HostNode) {
	l.Helper()
	key := client.ObjectKey{Namespace: sandbox.Namespace, Name: "lxd-initializer-" + node.Name}
	for what, tt := range map[string]struct {
		change func(*corev1.Secret)
		mended func(*corev1.Secret) bool
	}{
		"belong to the Node": {
			func(s *corev1.Secret) { s.OwnerReferences = nil },
			func(s *corev1.Secret) bool { return len(s.OwnerReferences) == 1 },
		},
		"be usable": {
			func(s *corev1.Secret) { s.Data[corev1.TLSCertKey] = []byte("no certificate") },
			func(s *corev1.Secret) bool { return strings.Contains(string(s.Data[corev1.TLSCertKey]), "CERTIFICATE") },
		},
	} {
		secret := &corev1.Secret{}
		if err := there.Get(l.Context(), key, secret); err != nil {
			l.Fatal(err)
		}
		tt.change(secret)
		if err := there.Update(l.Context(), secret); err != nil {
			l.Fatal(err)
		}
		if err := node.Kubelet.Kill(sandbox.InitializerContainer); err != nil {
			l.Fatal(err)
		}
		l.Wait("the Secret "+key.Name+" to "+what, func() (bool, string, error) {
			err := there.Get(l.Context(), key, secret)
			return err == nil && tt.mended(secret), "it does not", client.IgnoreNotFound(err)
		})
	}
	waitHost(l)
}

// askForMetrics asks the manager for its metrics, with a token that is good for nothing: it has to ask the API whose
// that is, and whether they may have them.
func askForMetrics(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: life.Namespace, Name: "default"}}
	token := &authenticationv1.TokenRequest{}
	if err := box.Client.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	containers := box.Kubelet.Containers()
	at := slices.IndexFunc(containers, func(c kubelet.Container) bool { return c.Name == sandbox.ManagerContainer && c.PID != 0 })
	if at < 0 {
		t.Fatal("no manager runs")
	}
	url := fmt.Sprintf("https://127.0.0.1:%d/metrics", containers[at].Ports[metricsPort])
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token.Status.Token)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // its certificate is its own
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("whoever has a token gets metrics: %s", response.Status)
	}
}

// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/program"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// The commands of documents are run here as a reader types them, on the objects of their page, where they need the
// chart's and Cluster API's kinds. Which are run elsewhere, or nowhere and why, TestEveryCommandOfADocumentIsRun in docs
// knows.

const (
	imageBefore, imageAfter = "custom/u-2204-k8s-1.35", "custom/u-2204-k8s-1.36"
	pageOfStart             = "docs/quick-start.md"
)

// contextIn writes a kubeconfig whose context is in a namespace, and returns its path.
func contextIn(t *testing.T, namespace string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// reads opens a page in a namespace, which is that of kubectl's context, and which is the page's own namespace default.
func reads(t *testing.T, page, namespace string) *document.Shell {
	t.Helper()
	shell := document.Open(t, filepath.Join(sources, page), "KUBECONFIG="+contextIn(t, namespace))
	shell.Rename("namespace default", "namespace "+namespace)
	shell.Rename("namespace=default", "namespace="+namespace)
	return shell
}

// makes makes objects of a page.
func makes(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := management.Create(t.Context(), o); err != nil {
			t.Fatalf("%T %s: %v", o, o.GetName(), err)
		}
	}
}

func wantOutput(t *testing.T, what, got string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("%s shows no %s:\n%s", what, pattern, got)
		}
	}
}

// The chart is installed, tested, upgraded and removed with the commands of the quick start, and then with those of its
// own page, with a manager that runs and a MAAS that responds. It is not parallel: the release is that of all tests.
func TestQuickStartInstalls(t *testing.T) {
	const key = "admin:token:hush"
	_, endpoint := simtest.Start(t, `users: [{name: root, admin: true, keys: ["`+key+`"]}]`, simulator.Options{})
	if err := uninstallChart(releaseName, releaseNamespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { installAgain(t) })
	runsManagers(t)
	start, own := reads(t, pageOfStart, "default"), reads(t, "charts/capmaas/README.md", "default")
	for _, shell := range []*document.Shell{start, own} {
		shell.Rename("kubectl create namespace", "kubectl get namespace") // It is there: no test can make it anew.
		shell.Rename(" --logs", "")                                       // They are in files here.
		shell.Rename("http://maas.example.com:5240/MAAS", endpoint)
		shell.Rename("\nimage: {", "\nlistenHost: 127.0.0.1\nwatchNamespace: default\nimage: {") // No other test's objects.
		if err := os.WriteFile(filepath.Join(shell.Dir, "key"), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantOutput(t, "install", start.Run(t, "install"), `STATUS: deployed`, `(?m)^Phase: +Succeeded`)
	wantOutput(t, "upgrade", start.Run(t, "upgrade-provider"), `REVISION: 2`, `(?m)^Phase: +Succeeded`)
	start.Run(t, "uninstall")

	for link, target := range map[string]string{"values.yaml": filepath.Join(start.Dir, "values.yaml"), "of-before": filepath.Join(start.Dir, "charts", "capmaas")} {
		if err := os.Symlink(target, filepath.Join(own.Dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	own.Rename("charts/capmaas-of-before", "of-before")
	wantOutput(t, "the chart's page", own.Run(t, "install"), `STATUS: deployed`, `(?m)^Phase: +Succeeded`)
	wantOutput(t, "the chart's page", own.Run(t, "back"), `REVISION: 2`)
	start.Run(t, "uninstall")
}

// runsManagers runs the pods of the release until the test ends.
func runsManagers(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := program.Build(t.Context(), sources, "manager")
	if err != nil {
		t.Fatal(err)
	}
	node, err := kubelet.Start(t.Context(), kubelet.Options{
		Config: config, CA: config.CAData, Namespace: releaseNamespace, Programs: map[string]string{"/manager": manager},
		Dir: t.TempDir(), LogDir: t.TempDir(), Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubelet.NodeName}}
		if err := errors.Join(node.Stop(), management.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
			t.Error(err)
		}
	})
}

// installAgain installs the chart as the other tests know it.
func installAgain(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, left := range []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "maas-credentials"}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "capmaas-check"}}} {
		left.SetNamespace(releaseNamespace)
		if err := management.Delete(ctx, left, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	if err := installChart(ctx, releaseName, releaseNamespace, nil); err != nil {
		t.Error(err)
	}
}

// The quick start's Cluster is made, looked at, scaled, upgraded and deleted with its commands, in their order. The
// class's page changes the class of the same Cluster.
func TestQuickStartOfAClass(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell, class := reads(t, pageOfStart, namespace), reads(t, "docs/clusterclass.md", namespace)
	class.Run(t, "class")
	shell.Run(t, "class")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "my-cluster"}}
	if got := imagesOf(t, reconciled(t, cluster)); !slices.Equal(got, []string{imageBefore}) {
		t.Errorf("the images are %v before", got)
	}
	makes(t, aMachine(namespace, "my-cluster-abcde"))
	wantOutput(t, "watch", shell.Run(t, "watch"), `my-cluster-abcde`, `Cluster \S+/my-cluster,`, `MaasCluster \S+/my-cluster-\w+`)
	wantOutput(t, "list", shell.Run(t, "list"), `(?m)^NAME +CLUSTER +MODE +STATE +ZONE +SERVER +HOST +ADDRESS +READY +REASON +AGE\nmy-cluster-abcde +my-cluster +`)
	hasWorkload(t, namespace, "my-cluster")
	wantOutput(t, "kubeconfig", shell.Run(t, "kubeconfig"), ``) // The nodes are those of other tests.
	report := reads(t, ".github/ISSUE_TEMPLATE/bug.md", namespace)
	report.Rename("maasmachine NAME", "maasmachine my-cluster-abcde")
	report.Rename("cluster NAME", "cluster my-cluster")
	wantOutput(t, "the report", report.Run(t, "objects"), namespace+` +maasmachine\S+/my-cluster-abcde`, `Kind: +MaasMachine`, `Cluster \S+/my-cluster,`)

	before := machinesOf(t, reconciled(t, cluster))
	wantOutput(t, "messages", class.Run(t, "messages"), `my-cluster +`)
	class.Run(t, "rebase")
	if diff := cmp.Diff(none, replaced(before, machinesOf(t, reconciled(t, cluster)))); diff != "" {
		t.Errorf("rebasing as in the document replaces (-want +got):\n%s", diff)
	}
	if cluster.Spec.Topology.ClassRef.Name != "capmaas-v2" {
		t.Errorf("the Cluster is of the class %s", cluster.Spec.Topology.ClassRef.Name)
	}

	provisioned(t, cluster)
	shell.Run(t, "upgrade")
	checkUpgraded(t, cluster, "3", []string{imageAfter})
	ends(t, shell, "delete", cluster)
}

// ends runs a step that deletes an object, up to where the object is being deleted: what it waits for then are
// controllers that don't run here.
func ends(t *testing.T, shell *document.Shell, step string, o client.Object) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	command := shell.Command(ctx, t, step)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = command.Wait() // It was killed, or done.
	}()
	eventually.Succeeds(t, step+" deletes it", func(ctx context.Context) error {
		if err := management.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
			return client.IgnoreNotFound(err)
		}
		return errors.New("it is not being deleted")
	})
}

// aMachine is a machine of the page's cluster.
func aMachine(namespace, name string) *infrav1.MaasMachine {
	return &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "my-cluster"}},
		Spec:       infrav1.MaasMachineSpec{Image: imageBefore},
	}
}

// hasWorkload lets the management cluster be the workload cluster, too: its kubeconfig is in the Secret that Cluster API
// would make.
func hasWorkload(t *testing.T, namespace, cluster string) {
	t.Helper()
	kubeconfig, err := os.ReadFile(management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": kubeconfig}}
	secret.Namespace, secret.Name, secret.Labels = namespace, cluster+"-kubeconfig", map[string]string{clusterv1.ClusterNameLabel: cluster}
	makes(t, secret)
}

// The quick start's line for the Cluster of a flavor with a ClusterClass works with it.
func TestQuickStartUpgradesTheClassOfAFlavor(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell := reads(t, pageOfStart, namespace)
	shell.Rename("templates/cluster-template-lxd.yaml", "templates/cluster-template-lxd-topology.yaml")
	shell.Rename("worker-machine-count 2", "worker-machine-count 1")
	shell.Set("CONTROL_PLANE_MACHINE_IMAGE", imageBefore)
	reads(t, "docs/clusterclass.md", namespace).Run(t, "class")
	shell.Run(t, "flavor")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "my-cluster"}}
	provisioned(t, reconciled(t, cluster))
	shell.Run(t, "upgrade-topology")
	checkUpgraded(t, cluster, "1", []string{imageAfter, imageAfter})
}

// The commands of the quick start for a flavor work in order, up to an upgrade without a ClusterClass, and so does its
// plain YAML.
func TestQuickStartUpgradesTheClusterOfAFlavor(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell := reads(t, pageOfStart, namespace)
	shell.Run(t, "flavor")
	name := client.ObjectKey{Namespace: namespace, Name: "my-cluster-control-plane"}
	rolledOut(t, name)
	shell.Run(t, "upgrade-templates")
	kcp, workers := &controlplanev1.KubeadmControlPlane{}, &clusterv1.MachineDeployment{}
	templates := &infrav1.MaasMachineTemplateList{}
	for _, err := range []error{
		management.Get(t.Context(), name, kcp),
		management.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "my-cluster-md-0"}, workers),
		management.List(t.Context(), templates, client.InNamespace(namespace)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	images := map[string]string{}
	for _, template := range templates.Items {
		images[template.Name] = template.Spec.Template.Spec.Image
	}
	controlPlanes, machines := kcp.Spec.MachineTemplate.Spec.InfrastructureRef.Name, workers.Spec.Template.Spec
	want := []string{"v1.36.0", imageAfter, "v1.36.0", imageAfter, "3"}
	got := []string{
		kcp.Spec.Version, images[controlPlanes], machines.Version, images[machines.InfrastructureRef.Name],
		fmt.Sprint(ptr.Deref(workers.Spec.Replicas, 0)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("control plane and workers (-want +got):\n%s", diff)
	}
	reads(t, pageOfStart, newNamespace(t)).Run(t, "plain")
}

// The clusters of docs/host-clusters.md are made, and their host cluster is looked at, as its reader does it; what its
// nodes do is not here.
func TestHostClustersDocument(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell := reads(t, "docs/host-clusters.md", namespace)
	shell.Run(t, "hosts", "cluster")
	clusters := &infrav1.MaasClusterList{}
	if err := management.List(t.Context(), clusters, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	areHosts := map[string]bool{}
	for _, c := range clusters.Items {
		areHosts[c.Name] = c.Spec.LXDControlPlaneCluster
		if c.Name == "hosts" {
			conditions.Set(&c, metav1.Condition{Type: infrav1.LXDReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.ReadyReason})
			if err := management.Status().Update(t.Context(), &c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(map[string]bool{"hosts": true, "my-cluster": false}, areHosts); diff != "" {
		t.Errorf("the MaasClusters, and whether they are of hosts (-want +got):\n%s", diff)
	}
	kubeconfig, err := os.ReadFile(management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shell.Dir, "hosts.kubeconfig"), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	makes(t, &infrav1.LXDHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "node-1"}, Spec: infrav1.LXDHostSpec{VMHost: &infrav1.VMHostReference{ID: 1}},
	})
	wantOutput(t, "ready", shell.Run(t, "ready"), `/hosts condition met`, namespace+` +node-1`)
}

// Calico's DaemonSet gets the setting of the page, and the initializer is installed by hand.
func TestHostClustersDocumentByHand(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell := reads(t, "docs/host-clusters.md", namespace)
	for _, name := range []string{"kube-system", "capmaas-system"} {
		shell.Rename("--namespace "+name, "--namespace "+namespace)
	}
	labels := map[string]string{"app": "calico-node"}
	node := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "calico-node"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no": "node"}, Containers: []corev1.Container{{Name: "calico-node", Image: "calico"}},
		}},
	}}
	makes(t, node)
	shell.Run(t, "calico")
	if err := management.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	if env := node.Spec.Template.Spec.Containers[0].Env; len(env) != 1 || env[0] != (corev1.EnvVar{Name: "FELIX_INTERFACEPREFIX", Value: "veth"}) {
		t.Errorf("calico-node has %v", env)
	}

	hasRepository(t, shell)
	shell.Rename("kubectl apply -f -", "kubectl apply --dry-run=server --output name -f -") // Its objects are of the whole cluster.
	wantOutput(t, "by-hand", shell.Run(t, "by-hand"), `daemonset.apps/lxd-initializer`, `secret/maas-credentials created`, `configmap/capmaas-config created`)
	key := &corev1.Secret{}
	if err := management.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "maas-credentials"}, key); err != nil {
		t.Fatal(err)
	}
	if got := string(key.Data["apiKey"]); got != "CONSUMER:TOKEN:SECRET" {
		t.Errorf("the key is %q", got)
	}
}

// hasRepository writes what `make manifests VERSION=v0.1.0` does.
func hasRepository(t *testing.T, shell *document.Shell) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(shell.Dir, "out"), os.DirFS(repository(t))); err != nil {
		t.Fatal(err)
	}
	metadata, err := os.ReadFile(filepath.Join(sources, "metadata.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shell.Dir, "metadata.yaml"), metadata, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The ConfigMap for the Cluster API Operator is one that the documented selector finds, with both files.
func TestOperatorsConfigMap(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell := reads(t, "docs/clusterctl.md", namespace)
	shell.Rename("--namespace capmaas-system", "--namespace "+namespace)
	hasRepository(t, shell)
	shell.Run(t, "files")
	files := &corev1.ConfigMapList{}
	if err := management.List(t.Context(), files, client.InNamespace(namespace), client.MatchingLabels{"provider-components": "maas"}); err != nil {
		t.Fatal(err)
	}
	if len(files.Items) != 1 || files.Items[0].Name != version || !strings.Contains(files.Items[0].Data["metadata"], "kind: Metadata") {
		t.Fatalf("the ConfigMaps are %v", files.Items)
	}
	if len(ofKind(mustParse(t, []byte(files.Items[0].Data["components"])), "Deployment")) != 1 {
		t.Error("the components have no Deployment")
	}
}

// The class of RKE2, and the flavors of other bootstrap providers, are had as their page says.
func TestBootstrapProvidersDocument(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell := reads(t, "docs/bootstrap-providers.md", namespace)
	rke2 := downloaded(t, filepath.Join(sources, "hack", "tools", "providers", "rke2"), "github.com/rancher/cluster-api-provider-rke2")
	installCRDs(t, rke2, "bootstrap/config/crd/bases/bootstrap.cluster.x-k8s.io_rke2configtemplates.yaml",
		"controlplane/config/crd/bases/controlplane.cluster.x-k8s.io_rke2controlplanetemplates.yaml")
	shell.Run(t, "class")
	configuration, err := os.ReadFile(filepath.Join(repository(t), "clusterctl.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	shell.Write(t, filepath.Join("cluster-api", "clusterctl.yaml"), configuration, 0o600)
	for step, kind := range map[string]string{"k3s": "KThreesControlPlane", "ck8s": "CK8sControlPlane"} {
		if got := ofKind(mustParse(t, []byte(shell.Run(t, step))), kind); len(got) != 1 || got[0].GetName() != "my-cluster-control-plane" {
			t.Errorf("%s: the control planes are %v", step, got)
		}
	}
}

// Commands of other pages, each on an object that its page is about.
func TestCommandsOfDocuments(t *testing.T) {
	t.Parallel()
	const argocd = "argocd"
	pages := map[string]map[string]string{
		"docs/gitops.md":                {"argocd": `configmap/argocd-cm patched`},
		"docs/hardware-checks.md":       {"checks": `(?s)maasmachinetemplate.infrastructure.cluster.x-k8s.io/my-cluster-gpu created.*machinehealthcheck.cluster.x-k8s.io/my-cluster-checks created`},
		"docs/hosted-control-planes.md": {"endpoint": `cluster.cluster.x-k8s.io/hosted patched`},
		"docs/mixed-clusters.md":        {"workers": `(?s)secret/maas created.*maascluster.infrastructure.cluster.x-k8s.io/my-cluster-maas created.*machinedeployment.cluster.x-k8s.io/my-cluster-metal created`},
		"docs/placement.md":             {"labels": `(?m)^NAME .* ZONE +LXD-HOST$\n^my-cluster-control-plane-abcde .* zone-a +lxd-a$`},
		"docs/troubleshooting.md":       {"look": `my-cluster-control-plane-abcde(?s:.*)Cluster \S+/my-cluster`, "nodes": `(?m)^NODE +REASON +MESSAGE$`},
	}
	namespace := newNamespace(t)
	machine := aMachine(namespace, "my-cluster-control-plane-abcde")
	machine.Labels["topology.kubernetes.io/zone"], machine.Labels["node.cluster.x-k8s.io/lxd-host"] = "zone-a", "lxd-a"
	makes(t, machine, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: argocd}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: argocd, Name: "argocd-cm"}, Data: map[string]string{"mine": "kept"}})
	for _, name := range []string{"hosted", "my-cluster"} {
		makes(t, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: name},
		}})
	}
	for page, steps := range pages {
		shell := reads(t, page, namespace)
		for step, want := range steps {
			wantOutput(t, page+": "+step, shell.Run(t, step), want)
		}
	}
	settings := &corev1.ConfigMap{}
	if err := management.Get(t.Context(), client.ObjectKey{Namespace: argocd, Name: "argocd-cm"}, settings); err != nil {
		t.Fatal(err)
	}
	if settings.Data["mine"] != "kept" || settings.Data["resource.customizations.health."+infrav1.GroupVersion.Group+"_MaasMachine"] == "" {
		t.Errorf("Argo CD's settings are %v", settings.Data)
	}
}

// rolledOut says of a control plane what its controller would: no rollout is under way.
func rolledOut(t *testing.T, name client.ObjectKey) {
	t.Helper()
	kcp := &controlplanev1.KubeadmControlPlane{}
	kcp.Namespace, kcp.Name = name.Namespace, name.Name
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"status": {"conditions": [{"type": "RollingOut", "status": "False",
		"reason": "NotRollingOut", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`))
	if err := management.Status().Patch(t.Context(), kcp, patch); err != nil {
		t.Fatal(err)
	}
}

// provisioned says of a Cluster's control plane what its controller would: Cluster API upgrades no other.
func provisioned(t *testing.T, cluster *clusterv1.Cluster) {
	t.Helper()
	kcp := &controlplanev1.KubeadmControlPlane{}
	kcp.Namespace, kcp.Name = cluster.Namespace, cluster.Spec.ControlPlaneRef.Name
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"status": {"version": "v1.35.0"}}`))
	if err := management.Status().Patch(t.Context(), kcp, patch); err != nil {
		t.Fatal(err)
	}
}

// checkUpgraded checks what a Cluster wants after the commands of the quick start.
func checkUpgraded(t *testing.T, cluster *clusterv1.Cluster, replicas string, images []string) {
	t.Helper()
	if err := management.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	topology := cluster.Spec.Topology
	workers := topology.Workers.MachineDeployments[0].Replicas
	got := []string{topology.Version, fmt.Sprint(ptr.Deref(workers, 0))}
	if diff := cmp.Diff(append([]string{"v1.36.0", replicas}, images...), append(got, imagesOf(t, cluster)...)); diff != "" {
		t.Errorf("the Cluster (-want +got):\n%s", diff)
	}
}

// imagesOf returns the images that a Cluster names, that of control planes last.
func imagesOf(t *testing.T, cluster *clusterv1.Cluster) (images []string) {
	t.Helper()
	topology := cluster.Spec.Topology
	for _, v := range slices.Concat(topology.Variables, topology.ControlPlane.Variables.Overrides) {
		if v.Name == "image" {
			image := ""
			if err := json.Unmarshal(v.Value.Raw, &image); err != nil {
				t.Fatal(err)
			}
			images = append(images, image)
		}
	}
	return images
}

// Manifests of the old provider are converted, tried and applied as its page says. What an old management cluster
// exports is of kinds and fields that both providers have: its own schemas can't be served beside ours.
func TestMigratingDocument(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shell := reads(t, "docs/migrating.md", namespace)
	shell.Rename("my-namespace", namespace)
	old, err := os.ReadFile(filepath.Join(sources, "pkg", "convert", "testdata", "bare-metal.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(contextIn(t, namespace))
	if err != nil {
		t.Fatal(err)
	}
	writes := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(shell.Dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writes("my-cluster.yaml", old)
	writes("old", kubeconfig)
	writes("new", kubeconfig)
	template := &infrav1.MaasMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old"}}
	template.Spec.Template.Spec.Image = "ubuntu/jammy"
	makes(t, template, &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old"}, Spec: infrav1.MaasClusterSpec{DNSDomain: "maas"}})

	shell.Run(t, "convert")
	shell.Run(t, "export")
	exported, err := os.ReadFile(filepath.Join(shell.Dir, "infrastructure.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if items := itemsOf(t, mustParse(t, exported)[0]); len(items) != 2 {
		t.Errorf("%d objects are exported, want 2:\n%s", len(items), exported)
	}
	wantOutput(t, "try", shell.Run(t, "try"), `created \(server dry run\)`)
	wantOutput(t, "create", shell.Run(t, "create"), `cluster.cluster.x-k8s.io/metal created`)

	writes("my-cluster.yaml", []byte("apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: MaasCluster\nmetadata: {name: my-cluster}\n"+
		"spec: {dnsDomain: maas, lxdConfig: {enabled: true, skipNetworkUpdate: false}}\n"))
	out, says, err := shell.Try(t, "losses")
	if err == nil {
		t.Error("a loss is no error")
	}
	wantOutput(t, "losses", out+says, `my-cluster.yaml:\d: loss: MaasCluster my-cluster: spec.lxdConfig.skipNetworkUpdate: `, `Nothing was written: 1 thing`)
}

// SPDX-License-Identifier: Apache-2.0

package clusterctl_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
)

const (
	// fleet is the document's cluster: three control planes in VMs, workers on bare metal.
	fleet = "my-cluster"
	// own has one control plane, with an address from a pool, and MAAS credentials of its own.
	own            = "own"
	address        = "10.77.0.60"
	freeAddress    = "10.77.0.59"
	controlPlanes  = 3
	shortTimeout   = eventually.Limit
	createTimeout  = 2 * eventually.Limit
	deleteTimeout  = eventually.Limit
	ownCredentials = "own-maas"
)

// story is the document's story so far.
type story struct {
	*life.Life
	whole *testing.T // of all parts
	shell *document.Shell
	// own is the second cluster, whose end is not compared: the first's is.
	own     client.ObjectKey
	orphans *watch
}

// open opens the document.
func open(t *testing.T) *document.Shell {
	t.Helper()
	return document.Open(t, page, "WEST="+west.KubeconfigPath, "EAST="+east.KubeconfigPath)
}

// TestClusterctl follows the document, in its order: clusterctl installs the provider in the east, and in the west,
// where Helm did, makes a cluster, which is inspected, moved to the east, changed there, backed up, restored in the
// west, and deleted.
func TestClusterctl(t *testing.T) {
	s := &story{whole: t, shell: open(t), own: client.ObjectKey{Namespace: life.Namespace, Name: own}}
	s.Life = life.Begin(t, west, fleet)
	s.orphans = watchOrphans(t)
	servePools(t)
	for _, part := range []struct {
		name string
		do   func(*story)
	}{
		{"Install", func(s *story) { install(s.T, s.shell) }},
		{"Create", (*story).create},
		{"Look", (*story).checkViews},
		{"MoveIsHeldUpByAMachineThatCameSince", (*story).heldUp},
		{"Move", (*story).move},
		{"Change", (*story).change},
		{"BackupAndRestore", (*story).restore},
		{"Delete", (*story).remove},
	} {
		began := time.Now()
		if !s.Run(part.name, func(t *testing.T) {
			now, cluster := *s, *s.Life
			cluster.T, now.Life = t, &cluster
			defer func() { s.Life.Box, s.Life.Record = now.Life.Box, now.Life.Record }()
			part.do(&now)
		}) {
			t.FailNow()
		}
		t.Logf("%s: %s", part.name, time.Since(began).Round(100*time.Millisecond))
	}
	s.orphans.check(t)
}

// servePools runs an IPAM provider in both, and makes the pool in the west.
func servePools(t *testing.T) {
	t.Helper()
	for _, box := range []*sandbox.Sandbox{west, east} {
		provider, err := ipam.Start(t.Context(), box.RESTConfig, life.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := provider.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := west.Client.Create(t.Context(), ipam.NewPool(life.Namespace, own, address)); err != nil {
		t.Fatal(err)
	}
}

func (s *story) create() {
	out := s.shell.Run(s.T, "variables")
	for _, want := range []string{`(?m)^Required Variables:\s`, `(?m)^\s*- MAAS_DNS_DOMAIN$`, `(?m)^\s*- CONTROL_PLANE_MACHINE_RESOURCEPOOL\s+\(defaults to .*default`} {
		if !regexp.MustCompile(want).MatchString(out) {
			s.Errorf("the list of variables lacks %s:\n%s", want, out)
		}
	}
	s.shell.Set("CONTROL_PLANE_MACHINE_RESOURCEPOOL", "capi")
	s.shell.Set("WORKER_MACHINE_RESOURCEPOOL", "capi")
	reached, release := s.holdDeploy()
	s.shell.Run(s.T, "generate")
	s.Record = life.WatchRecord(s.whole, west.MAAS, s.endpoint())
	s.createOwn()
	s.await("a machine to come", reached)
	s.refused()
	release()
	s.Available(controlPlanes + 1)
	s.ownAvailable()
	// It would be given now to a claim that was moved without its address.
	pool := ipam.NewPool(life.Namespace, own, freeAddress, address)
	if err := west.Client.Patch(s.Context(), pool, client.Merge); err != nil {
		s.Fatal(err)
	}
}

// endpoint waits for the name of the first cluster's API endpoint.
func (s *story) endpoint() string {
	s.Helper()
	cluster := &clusterv1.Cluster{}
	s.Wait("the API endpoint to have a name", func() (bool, string, error) {
		err := s.Box.Client.Get(s.Context(), s.Key, cluster)
		return cluster.Spec.ControlPlaneEndpoint.Host != "", sandbox.Conditions(cluster.Status.Conditions), err
	})
	return cluster.Spec.ControlPlaneEndpoint.Host
}

// createOwn makes the second cluster, once clusterctl has brought the ClusterClass.
func (s *story) createOwn() {
	s.Helper()
	credentials := &corev1.Secret{Data: map[string][]byte{scope.EndpointKey: []byte(west.MAASURL), scope.APIKeyKey: []byte(west.MAASAPIKey)}}
	credentials.Namespace, credentials.Name = life.Namespace, ownCredentials
	if err := west.Client.Create(s.Context(), credentials); err != nil {
		s.Fatal(err)
	}
	values := []any{}
	for name, value := range map[string]any{
		"dnsDomain": "maas.sim", "image": "u-2204-k8s-1.35", "lxdConfig": map[string]any{}, "controlPlane": map[string]any{"resourcePool": "capi"},
		"credentialsRef": map[string]any{"name": ownCredentials}, "staticIPPoolRef": map[string]any{"apiGroup": ipam.Kind.Group, "kind": ipam.Kind.Kind, "name": own},
	} {
		values = append(values, map[string]any{"name": name, "value": value})
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "Cluster", "metadata": map[string]any{"name": own, "namespace": life.Namespace},
		"spec": map[string]any{
			"clusterNetwork": map[string]any{
				"pods": map[string]any{"cidrBlocks": []string{"10.244.0.0/16"}}, "services": map[string]any{"cidrBlocks": []string{"10.96.0.0/12"}},
			},
			"topology": map[string]any{
				"classRef": map[string]any{"name": "capmaas"}, "version": "v1.35.0", "controlPlane": map[string]any{"replicas": 1}, "variables": values,
			},
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Apply(string(manifest))
}

func (s *story) ownAvailable() {
	s.Helper()
	if err := s.Box.WaitAvailable(s.Within(createTimeout), s.own, 1); err != nil {
		s.Fatal(err)
	}
}

// checkViews checks that clusterctl's view shows our objects, and that its kubeconfig is of use.
func (s *story) checkViews() {
	tree := s.shell.Run(s.T, "describe")
	for _, want := range []string{
		`MaasCluster default/my-cluster-\w+ `, `MaasMachine default/my-cluster-md-0-\w+`,
		`FailureDomainsReady\s+True`, `DNSReady\s+True`, `LXDVMDeployed\s+True`, `MachineDeployed\s+True`, `DNSAttached\s+True`,
	} {
		if !regexp.MustCompile(want).MatchString(tree) {
			s.Errorf("clusterctl describe does not tell of %s:\n%s", want, tree)
		}
	}
	if nodes := s.shell.Run(s.T, "kubeconfig"); strings.Count(nodes, "\n") != 1+controlPlanes+1 {
		s.Errorf("with clusterctl's kubeconfig there are these nodes:\n%s", nodes)
	}
	raw, err := os.ReadFile(filepath.Join(s.shell.Dir, fleet+".kubeconfig"))
	if err != nil {
		s.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		s.Fatal(err)
	}
	if host := config.Host; !strings.Contains(host, fleet) || !strings.HasSuffix(host, ".maas.sim:6443") {
		s.Errorf("the kubeconfig leads to %s", host)
	}
}

// change scales in the east, down and up again.
func (s *story) change() {
	before := west.MAAS.Calls().Total
	s.ScaleWorkers(1)
	s.Available(controlPlanes + 1)
	s.ScaleWorkers(2)
	s.Available(controlPlanes + 2)
	made := writes(before)
	for op, want := range map[string]int{
		eastUser + ": POST machines/{id}/ release": 1, eastUser + ": POST machines/ allocate": 1, eastUser + ": POST machines/{id}/ deploy": 1,
	} {
		if made[op] != want {
			s.Errorf("%s: %d times, want %d; all: %v", op, made[op], want, made)
		}
	}
}

// remove deletes both clusters, and compares MAAS with how it was before the first was made.
func (s *story) remove() {
	if err := s.Box.DeleteCluster(s.Within(deleteTimeout), s.own); err != nil {
		s.Fatal(err)
	}
	s.Delete()
}

// outcome returns the output of a step in one text.
func outcome(out, says string, err error) string { return fmt.Sprintf("%v\n%s%s", err, out, says) }

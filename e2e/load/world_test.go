// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/program"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	root      = "../.."
	apiKey    = "consumer:token:secret"
	vmsOnHost = 10
)

// stage is the MAAS of a benchmark, and the pace of its surroundings.
type stage struct {
	region string
	// timeScale is how many seconds pass in MAAS in one of the run.
	timeScale float64
	// playInterval is how often the rest of Cluster API acts.
	playInterval time.Duration
}

// world is all that is around the manager: the management cluster's API, MAAS, and the API servers of the workload
// clusters.
type world struct {
	dir          string
	kubeconfig   string
	client       client.Client
	maas         *simulator.Simulator
	maasURL      string
	playInterval time.Duration
	workload     inmemory.Manager
	servers      []*httptest.Server
}

// region has a machine for each worker, and VM hosts for the control planes.
func region(clusters int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "users: [{name: admin, admin: true, keys: [%q]}]\n", apiKey)
	out.WriteString(`
zones: [{name: zone-a}, {name: zone-b}, {name: zone-c}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.64.0.0/16, gateway: 10.64.0.1, dns_servers: [10.64.0.2], dhcp: true, dynamic_ranges: [{start: 10.64.200.0, end: 10.64.250.0}]}]
images: [{name: ubuntu/noble}]
machines:
`)
	zone := func(i int) string { return "zone-" + string(rune('a'+i%3)) }
	for i := range clusters * (machinesPerCluster - 1) {
		fmt.Fprintf(&out, "- {names: [metal-%d], zone: %s, cores: 8, memory: 16384, disks: [100]}\n", i, zone(i))
	}
	out.WriteString("vm_hosts:\n")
	for i := range clusters/vmsOnHost + 3 {
		fmt.Fprintf(&out, "- {name: lxd-%d, zone: %s, cores: 64, memory: 262144, storage_pools: [{name: default, type: zfs, size: 2000}]}\n", i, zone(i))
	}
	return out.String()
}

// startWorld starts all but the manager.
func startWorld(b *testing.B, s stage) *world {
	b.Helper()
	ctrl.SetLogger(logr.Discard())
	w := &world{dir: b.TempDir(), playInterval: s.playInterval}
	plane, err := controlplane.Start(b.Context(), controlplane.Options{Dir: filepath.Join(w.dir, "k8s"), LogDir: w.dir})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			b.Error(err)
		}
	})
	module, err := exec.CommandContext(b.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := envtest.InstallCRDs(plane.RESTConfig(), envtest.CRDInstallOptions{ErrorIfPathMissing: true, MaxTime: eventually.Limit, Paths: []string{
		filepath.Join(root, "charts", "capmaas", "files", "crds"), filepath.Join(strings.TrimSpace(string(module)), "core", "config", "crd", "bases"),
	}}); err != nil {
		b.Fatal(err)
	}
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	if err := plane.WriteKubeconfig(w.kubeconfig); err != nil {
		b.Fatal(err)
	}
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, cloudv1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			b.Fatal(err)
		}
	}
	config := plane.RESTConfig()
	config.QPS = -1
	if w.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		b.Fatal(err)
	}
	w.startMAAS(b, s)
	w.workload = inmemory.NewManager(scheme)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	b.Cleanup(cancel)
	if err := w.workload.Start(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		for _, server := range w.servers {
			server.CloseClientConnections()
			server.Close()
		}
	})
	return w
}

func (w *world) startMAAS(b *testing.B, s stage) {
	b.Helper()
	described, err := simulator.LoadRegion(strings.NewReader(s.region))
	if err != nil {
		b.Fatal(err)
	}
	if w.maas, err = simulator.New(described, simulator.Options{TimeScale: s.timeScale}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.maas.Close)
	server := httptest.NewServer(w.maas.Handler())
	b.Cleanup(server.Close)
	w.maasURL = server.URL + "/MAAS"
}

// startManager runs the manager with the settings of the chart, and with the flags, which win.
func (w *world) startManager(b *testing.B, flags ...string) *process.Process {
	b.Helper()
	manager, err := program.Build(b.Context(), root, "manager")
	if err != nil {
		b.Fatal(err)
	}
	credentials := filepath.Join(w.dir, "maas")
	for name, content := range map[string]string{"config/maasEndpoint": w.maasURL, "credentials/apiKey": apiKey} {
		file := filepath.Join(credentials, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	p, err := process.Start(process.Spec{
		Name: "manager", Path: manager, Dir: w.dir, LogFile: filepath.Join(w.dir, "manager.log"),
		Env: append([]string{"KUBECONFIG=" + w.kubeconfig}, limits()...),
		Args: append([]string{
			"--leader-elect", "--leader-election-namespace=" + corev1.NamespaceDefault, "--health-addr=127.0.0.1:0",
			"--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics", "--maas-config-dir=" + credentials,
		}, flags...),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Stop(stopGrace); err != nil {
			b.Error(err)
		}
		if log, err := os.ReadFile(filepath.Join(w.dir, "manager.log")); err == nil && b.Failed() {
			b.Logf("The end of the manager's log:\n%s", log[max(0, len(log)-logTail):])
		}
	})
	return p
}

// limits are what of our own environment makes the Go runtime behave otherwise.
func limits() []string {
	var variables []string
	for _, name := range []string{"GOMEMLIMIT", "GOGC"} {
		if value, ok := os.LookupEnv(name); ok {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

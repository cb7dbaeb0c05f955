// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

func TestPreferredSubnets(t *testing.T) {
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: infrav1.PreferredSubnetConfigMap, Namespace: "ns"},
		Data:       map[string]string{infrav1.PreferredSubnetKey: "10.0.0.0/24, 10.1.0.0/24"},
	}
	for name, tc := range map[string]struct {
		spec []string
		want []string
	}{
		"the ConfigMap":           {nil, []string{"10.0.0.0/24", "10.1.0.0/24"}},
		"the spec goes before it": {[]string{"10.9.0.0/24"}, []string{"10.9.0.0/24"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cluster{MaasCluster: &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}, client: fake.NewClientBuilder().WithObjects(config).Build()}
			c.MaasCluster.Spec.PreferredSubnets = tc.spec
			got, err := c.preferredSubnets(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var want []netip.Prefix
			for _, text := range tc.want {
				want = append(want, netip.MustParsePrefix(text))
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("the subnets differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	cluster := func(change func(*infrav1.MaasCluster)) *Cluster {
		c := &Cluster{
			Cluster:     &clusterv1.Cluster{},
			MaasCluster: &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Annotations: map[string]string{infrav1.OwnerIDAnnotation: "owner"}}},
		}
		c.MaasCluster.Spec.DNSDomain = "maas"
		change(c.MaasCluster)
		return c
	}
	ours, former := maas.EndpointLabel("c1", "owner")+".maas", maas.EndpointLabel("c0", "owner")+".maas"
	for name, tc := range map[string]struct {
		change func(*infrav1.MaasCluster)
		want   Endpoint
	}{
		"none yet":            {func(*infrav1.MaasCluster) {}, EndpointDNS},
		"ours":                {func(c *infrav1.MaasCluster) { c.Spec.ControlPlaneEndpoint.Host = ours }, EndpointDNS},
		"only a port":         {func(c *infrav1.MaasCluster) { c.Spec.ControlPlaneEndpoint.Port = 443 }, EndpointDNS},
		"the user's":          {func(c *infrav1.MaasCluster) { c.Spec.ControlPlaneEndpoint.Host = "api.example.com" }, EndpointExternal},
		"the user's, no zone": {func(c *infrav1.MaasCluster) { c.Spec.DNSDomain, c.Spec.ControlPlaneEndpoint.Host = "", "10.0.0.1" }, EndpointExternal},
		"by annotation":       {func(c *infrav1.MaasCluster) { c.Annotations[infrav1.CustomDNSAnnotation] = "" }, EndpointExternal},
		"annotated later": {func(c *infrav1.MaasCluster) {
			c.Spec.ControlPlaneEndpoint.Host, c.Annotations[infrav1.CustomDNSAnnotation] = ours, ""
		}, EndpointDNS},
		"made for a MaasCluster of another name": {func(c *infrav1.MaasCluster) { c.Spec.ControlPlaneEndpoint.Host = former }, EndpointDNS},
		"in another domain": {func(c *infrav1.MaasCluster) {
			c.Spec.ControlPlaneEndpoint.Host = maas.EndpointLabel("c1", "owner") + ".maas.example.com"
		}, EndpointExternal},
		"another cluster's": {func(c *infrav1.MaasCluster) {
			c.Spec.ControlPlaneEndpoint.Host = maas.EndpointLabel("c1", "other") + ".maas"
		}, EndpointExternal},
		"a machine's of the cluster": {func(c *infrav1.MaasCluster) {
			c.Spec.ControlPlaneEndpoint.Host = maas.Hostname("c1", "owner") + ".maas"
		}, EndpointExternal},
		"something else's": {func(c *infrav1.MaasCluster) { c.Annotations[clusterv1.ManagedByAnnotation] = "terraform" }, EndpointExternal},
		"ours, of a MaasCluster that something else manages since": {func(c *infrav1.MaasCluster) {
			c.Annotations[clusterv1.ManagedByAnnotation], c.Finalizers = "terraform", []string{infrav1.ClusterFinalizer}
		}, EndpointDNS},
		"a virtual IP": {func(c *infrav1.MaasCluster) { c.Spec.VirtualIP = &infrav1.VirtualIP{Subnet: "10.0.0.0/24"} }, EndpointVirtualIP},
		"a virtual IP that is reserved": {func(c *infrav1.MaasCluster) {
			c.Spec.VirtualIP, c.Spec.ControlPlaneEndpoint.Host = &infrav1.VirtualIP{Subnet: "10.0.0.0/24"}, "10.0.0.7"
		}, EndpointVirtualIP},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(tc.change)
			if got := c.Endpoint(); got != tc.want {
				t.Errorf("the endpoint is %s, want %s", got, tc.want)
			}
			want := ours
			if c.MaasCluster.Spec.ControlPlaneEndpoint.Host == former {
				want = former
			}
			if got := c.EndpointName(); c.MaasCluster.Spec.DNSDomain != "" && got != want {
				t.Errorf("the name is %s, want %s", got, want)
			}
		})
	}
	t.Run("the port is the user's, then the Cluster's, then the default", func(t *testing.T) {
		c := cluster(func(*infrav1.MaasCluster) {})
		var got []int32
		got = append(got, c.APIServerPort())
		c.Cluster.Spec.ClusterNetwork.APIServerPort = 8443
		got = append(got, c.APIServerPort())
		c.Cluster.Spec.ControlPlaneEndpoint.Port = 7443
		got = append(got, c.APIServerPort())
		c.MaasCluster.Spec.ControlPlaneEndpoint.Port = 443
		got = append(got, c.APIServerPort())
		if diff := cmp.Diff([]int32{6443, 8443, 7443, 443}, got); diff != "" {
			t.Errorf("the ports differ (-want +got):\n%s", diff)
		}
	})
}

func TestVMSpec(t *testing.T) {
	machine := func(spec infrav1.MaasMachineSpec, zone string) *Machine {
		m := &Machine{
			Cluster:     &Cluster{Cluster: &clusterv1.Cluster{}, MaasCluster: &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{infrav1.OwnerIDAnnotation: "owner"}}}},
			Machine:     &clusterv1.Machine{Spec: clusterv1.MachineSpec{FailureDomain: zone}},
			MaasMachine: &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: spec},
		}
		m.MaasMachine.Spec.ProvisioningMode = infrav1.ProvisioningModeLXD
		return m
	}
	hostname := maas.Hostname("m", "owner")
	base := lxd.VMSpec{
		Hostname: hostname, Marks: lxdhost.Marks{Owner: "owner", Machine: hostname}, Cluster: "owner", Resources: lxd.Resources{Cores: 2, Memory: 4096, Disk: 20},
		AgentName: "capmaas/owner/m", Annotations: map[string]string{"capmaas-cluster": "", "capmaas-machine": ".m", "capmaas-owner": "owner"},
	}
	want := func(change func(*lxd.VMSpec)) lxd.VMSpec { spec := base; change(&spec); return spec }
	for name, tc := range map[string]struct {
		spec infrav1.MaasMachineSpec
		zone string
		want lxd.VMSpec
	}{
		"defaults": {infrav1.MaasMachineSpec{}, "", base},
		"sizes": {infrav1.MaasMachineSpec{MinCPU: 4, MinMemory: 8192, MinDiskSize: 40}, "", want(func(s *lxd.VMSpec) {
			s.Resources = lxd.Resources{Cores: 4, Memory: 8192, Disk: 40}
		})},
		"the storage's size goes before minDiskSize": {infrav1.MaasMachineSpec{MinDiskSize: 40, LXDConfig: &infrav1.LXDMachineConfig{Storage: infrav1.LXDStorage{Size: "60", Pool: "fast"}}}, "", want(func(s *lxd.VMSpec) {
			s.Disk, s.StoragePool = 60, "fast"
		})},
		"the Machine's zone goes before the MaasMachine's": {infrav1.MaasMachineSpec{FailureDomain: "b"}, "a", want(func(s *lxd.VMSpec) { s.Zone = "a" })},
		"a bridge": {infrav1.MaasMachineSpec{LXDConfig: &infrav1.LXDMachineConfig{Network: infrav1.LXDNetwork{Bridge: "br0"}}}, "", want(func(s *lxd.VMSpec) {
			s.Devices = []lxd.Device{{Name: "eth0", Bridge: "br0"}}
		})},
		"devices": {infrav1.MaasMachineSpec{LXDConfig: &infrav1.LXDMachineConfig{Network: infrav1.LXDNetwork{Devices: []infrav1.LXDNetworkDevice{{Name: "eth0", Bridge: "br0"}, {Name: "eth1", Subnet: "10.0.0.0/24"}}}}}, "", want(func(s *lxd.VMSpec) {
			s.Devices = []lxd.Device{{Name: "eth0", Bridge: "br0"}, {Name: "eth1", Subnet: "10.0.0.0/24"}}
		})},
		"disks and hardware": {infrav1.MaasMachineSpec{LXDConfig: &infrav1.LXDMachineConfig{
			Disks:   []infrav1.LXDDisk{{Size: "5"}, {Size: "6", Pool: "fast"}},
			Devices: []infrav1.LXDDevice{{Name: "gpu0", Type: "gpu", Properties: map[string]string{"pci": "1"}}},
		}}, "", want(func(s *lxd.VMSpec) {
			s.MoreDisks = []lxd.Disk{{Size: 5}, {Size: 6, Pool: "fast"}}
			s.Hardware = map[string]map[string]string{"gpu0": {"type": "gpu", "pci": "1"}}
		})},
		"secure boot": {infrav1.MaasMachineSpec{LXDConfig: &infrav1.LXDMachineConfig{SecureBoot: true}}, "", want(func(s *lxd.VMSpec) {
			s.SecureBoot = true
		})},
		"where": {infrav1.MaasMachineSpec{ResourcePool: "p", Tags: []string{"t"}, LXDConfig: &infrav1.LXDMachineConfig{VMHost: "h", Project: "x", Profile: "maas", Commission: true}}, "", want(func(s *lxd.VMSpec) {
			s.ResourcePool, s.Tags, s.HostName, s.Project, s.Profile, s.Commission = "p", []string{"t"}, "h", "x", "maas", true
		})},
		"apart, if possible": {infrav1.MaasMachineSpec{LXDConfig: &infrav1.LXDMachineConfig{AntiAffinity: infrav1.AntiAffinityPreferred}}, "", base},
		"apart": {infrav1.MaasMachineSpec{LXDConfig: &infrav1.LXDMachineConfig{AntiAffinity: infrav1.AntiAffinityRequired}}, "", want(func(s *lxd.VMSpec) {
			s.AntiAffinity = lxd.RequireApart
		})},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, machine(tc.spec, tc.zone).VMSpec(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("the VM differs (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("control planes are a group of their own", func(t *testing.T) {
		m := machine(infrav1.MaasMachineSpec{}, "")
		m.Machine.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		if got := m.VMSpec().Cluster; got == base.Cluster {
			t.Errorf("the group is %q, which is the workers'", got)
		}
	})
}

// Each field of lxdConfig is in the VM that is wanted, or it is told who reads it: one that is forgotten would do nothing.
func TestEveryFieldOfLXDConfigIsInTheVM(t *testing.T) {
	readElsewhere := map[string]string{".Network.Devices.LinkMode": "the links of its interfaces, once it is made"}
	config := &infrav1.LXDMachineConfig{
		Disks: make([]infrav1.LXDDisk, 1), Devices: make([]infrav1.LXDDevice, 1),
		Network: infrav1.LXDNetwork{Devices: make([]infrav1.LXDNetworkDevice, 1)},
	}
	vm := func() lxd.VMSpec { return VMSpec("ns", infrav1.MaasMachineSpec{LXDConfig: config}) }
	before := vm()
	eachLeaf(reflect.ValueOf(config).Elem(), "", func(path string, leaf reflect.Value) {
		values := []any{"7", "Required", true, int32(7), map[string]string{"a": "b"}}
		isInVM := slices.ContainsFunc(values, func(value any) bool {
			v := reflect.ValueOf(value)
			if v.Kind() != leaf.Kind() {
				return false
			}
			defer leaf.SetZero()
			leaf.Set(v.Convert(leaf.Type()))
			return !reflect.DeepEqual(before, vm())
		})
		if why := readElsewhere[path]; isInVM == (why != "") {
			t.Errorf("%s is in the VM: %t; read elsewhere: %q", path, isInVM, why)
		}
	})
}

// eachLeaf visits the fields that have no fields, also those of the first item of a list.
func eachLeaf(v reflect.Value, path string, visit func(path string, leaf reflect.Value)) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			eachLeaf(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case v.Kind() == reflect.Slice && v.Len() > 0:
		eachLeaf(v.Index(0), path, visit)
	default:
		visit(path, v)
	}
}

func TestManagerCredentials(t *testing.T) {
	dir := t.TempDir()
	manager := ManagerCredentials{Dir: dir}
	var missing *CredentialsError
	if _, err := manager.config("ns", "spec.credentialsRef"); !errors.As(err, &missing) {
		t.Fatalf("without files: %v, want a CredentialsError", err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config/maasEndpoint", "http://maas/MAAS\n")
	write("credentials/apiKey", "a:b:c\n")
	for _, key := range []string{"a:b:c", "a:b:rotated"} {
		write("credentials/apiKey", key+"\n")
		got, err := manager.config("ns", "spec.credentialsRef")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(maas.Config{Endpoint: "http://maas/MAAS", APIKey: key}, got); diff != "" {
			t.Errorf("the credentials differ (-want +got):\n%s", diff)
		}
	}
}

func TestManagersCredentialsAreForItsNamespacesAlone(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"config/maasEndpoint": "http://maas/MAAS", "credentials/apiKey": "a:b:c"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "tenant"}, Data: map[string][]byte{
		"endpoint": []byte("http://maas/MAAS"), "apiKey": []byte("d:e:f"),
	}}
	ref := &infrav1.LocalObjectReference{Name: "own"}
	for name, tc := range map[string]struct {
		namespaces []string
		namespace  string
		change     func(*infrav1.MaasClusterSpec)
		// cluster and hosts are the keys that the cluster itself and its host cluster's nodes use; "" is none.
		cluster, hosts string
	}{
		"for all":                {nil, "tenant", func(*infrav1.MaasClusterSpec) {}, "a:b:c", "a:b:c"},
		"for this one":           {[]string{"infra", "tenant"}, "tenant", func(*infrav1.MaasClusterSpec) {}, "a:b:c", "a:b:c"},
		"for all that ask":       {[]string{"infra", "*"}, "tenant", func(*infrav1.MaasClusterSpec) {}, "a:b:c", ""},
		"for all, and this one":  {[]string{"*", "tenant"}, "tenant", func(*infrav1.MaasClusterSpec) {}, "a:b:c", "a:b:c"},
		"for none":               {[]string{}, "tenant", func(*infrav1.MaasClusterSpec) {}, "", ""},
		"for others":             {[]string{"infra"}, "tenant", func(*infrav1.MaasClusterSpec) {}, "", ""},
		"for one like it":        {[]string{"tenant-a"}, "tenant", func(*infrav1.MaasClusterSpec) {}, "", ""},
		"credentials of its own": {[]string{"infra"}, "tenant", func(s *infrav1.MaasClusterSpec) { s.CredentialsRef = ref }, "d:e:f", "d:e:f"},
		"credentials for its hosts alone": {[]string{"infra"}, "tenant", func(s *infrav1.MaasClusterSpec) {
			s.LXDConfig = &infrav1.LXDHostConfig{CredentialsRef: ref}
		}, "", "d:e:f"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Factory{Client: fake.NewClientBuilder().WithObjects(own).Build(), Manager: ManagerCredentials{Dir: dir, Namespaces: tc.namespaces}}
			c := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace}}
			tc.change(&c.Spec)
			check := func(what, want string, got maas.Config, err error) {
				t.Helper()
				var refused *CredentialsError
				if got.APIKey != want || (want == "") != errors.As(err, &refused) {
					t.Errorf("%s: the key %q, and %v; want %q", what, got.APIKey, err, want)
				}
			}
			config, _, err := f.config(t.Context(), c)
			check("the cluster", tc.cluster, config, err)
			config, err = f.HostCredentials(t.Context(), c)
			check("its hosts", tc.hosts, config, err)
		})
	}
}

func TestSecretCredentials(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "maas", Namespace: "ns"}, Data: map[string][]byte{
		"endpoint": []byte("https://maas/MAAS"), "apiKey": []byte("a:b:c\n"), "caBundle": []byte("PEM"),
	}}
	f := &Factory{Client: fake.NewClientBuilder().WithObjects(secret).Build()}
	got, err := f.secretConfig(t.Context(), "spec.credentialsRef", "ns", "maas")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(maas.Config{Endpoint: "https://maas/MAAS", APIKey: "a:b:c", CABundle: []byte("PEM")}, got); diff != "" {
		t.Errorf("the credentials differ (-want +got):\n%s", diff)
	}
	var missing *CredentialsError
	if _, err := f.secretConfig(t.Context(), "spec.credentialsRef", "ns", "other"); !errors.As(err, &missing) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without the Secret: %v, want a CredentialsError on one line", err)
	}
}

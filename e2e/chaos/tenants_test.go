// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/canonical/lxd/shared/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/hostile"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

// harm is a server of a tenant: at first, and in the end, an honest one, and in between one that does harm.
type harm struct {
	name   string
	door   *hostile.Door
	does   http.Handler
	honest http.Handler
	asked  func() int
}

// harms are a silent server, one that responds without end, and a liar.
func harms(honest http.Handler, flood *hostile.Flood, liar http.Handler, lied func() int) []harm {
	silence := hostile.NewSilence()
	return []harm{
		{"silent", &hostile.Door{}, silence, honest, silence.Asked},
		{"endless", &hostile.Door{}, flood, honest, flood.Asked},
		{"lying", &hostile.Door{}, liar, honest, lied},
	}
}

// tenants have MAASes and LXDs of their own, which do harm to whoever asks them. Their MAASes have a copy of
// production's database, so that what they say is about machines that there are.
type tenants struct {
	a *assault
	// maases and lxds are the harms, and clusters those that use them.
	maases, lxds []harm
	clusters     []own
	hosts        []*infrav1.LXDHost
}

// tenantSpec is what a tenant's machine needs.
const tenantSpec = "image: " + vmImage + ", resourcePool: capi, minCPU: 1, minMemory: 2048, minDiskSize: 8"

// startTenants returns when all tenants have clusters, and their servers begin to do harm.
func startTenants(ctx context.Context, a *assault) (*tenants, error) {
	region, err := box.MAAS.Copy()
	if err != nil {
		return nil, fmt.Errorf("making the tenants' MAAS: %w", err)
	}
	a.t.Cleanup(region.Close)
	truth := region.Handler()
	liar := &hostile.LyingMAAS{MAAS: truth}
	images := []string{vmImage}
	lxd := &hostile.LyingLXD{Claims: a.vmsOfOthers, Images: images}
	t := &tenants{
		a: a, maases: harms(truth, hostile.EndlessMAAS(), liar, liar.Lied),
		lxds: harms(&hostile.LyingLXD{Images: images}, hostile.EndlessLXD(), lxd, lxd.Asked),
	}
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	for _, h := range append(t.maases, t.lxds...) {
		h.door.LeadsTo(h.honest)
	}
	if err := errors.Join(t.useMAASes(ctx), t.useLXDs(ctx, hostile.Serve(a.t, truth))); err != nil {
		return t, err
	}
	for _, h := range append(t.maases, t.lxds...) {
		h.door.LeadsTo(h.does)
	}
	return t, nil
}

// useMAASes makes a cluster on each MAAS. What is done to its machines when the harm begins is under way.
func (t *tenants) useMAASes(ctx context.Context) error {
	errs := make([]error, len(t.maases))
	var each sync.WaitGroup
	for i, h := range t.maases {
		name := h.name + "-maas"
		cluster := own{key: client.ObjectKey{Namespace: elsewhere + name, Name: name}, url: hostile.Serve(t.a.t, h.door)}
		t.clusters = append(t.clusters, cluster)
		each.Go(func() {
			errs[i] = errors.Join(cluster.make(ctx,
				sandbox.PlainMachine{Name: name + "-cp", Spec: tenantSpec + ", provisioningMode: lxd"},
				sandbox.PlainMachine{Name: name + "-md", Worker: true, Spec: tenantSpec}), cluster.hasEndpoint(ctx))
		})
	}
	each.Wait()
	return errors.Join(errs...)
}

// useLXDs makes a cluster with an honest MAAS, and a VM for each LXD.
func (t *tenants) useLXDs(ctx context.Context, url string) error {
	cluster := own{key: client.ObjectKey{Namespace: elsewhere + "lxds", Name: "lxds"}, url: url}
	if err := cluster.make(ctx); err != nil {
		return err
	}
	t.clusters = append(t.clusters, cluster)
	for _, h := range t.lxds {
		if err := t.useLXD(ctx, cluster, h); err != nil {
			return err
		}
		vm := sandbox.PlainMachine{
			Name: h.name + "-vm", Worker: true, Spec: "image: " + vmImage + ", resourcePool: " + directPool +
				", minCPU: 1, minMemory: 2048, minDiskSize: 8, provisioningMode: lxd, lxdConfig: {vmHost: " + h.name + "}",
		}
		if err := cluster.add(ctx, vm); err != nil {
			return err
		}
	}
	return cluster.hasEndpoint(ctx)
}

// useLXD makes an LXDHost.
func (t *tenants) useLXD(ctx context.Context, of own, h harm) error {
	keys, err := lxdnode.NewKeys("tenant")
	if err != nil {
		return fmt.Errorf("making the keys of a tenant's LXD: %w", err)
	}
	address, certificate := hostile.ServeTLS(t.a.t, h.door)
	meta := metav1.ObjectMeta{Namespace: of.key.Namespace, Name: h.name}
	host := &infrav1.LXDHost{ObjectMeta: meta, Spec: infrav1.LXDHostSpec{
		Address: address, ServerCertificate: string(certificate), Zone: "zone-a", ResourcePool: directPool,
		CredentialsRef:     &infrav1.LocalObjectReference{Name: h.name},
		MAASCredentialsRef: &infrav1.LocalObjectReference{Name: of.plain().Credentials},
		AllowedNamespaces:  []string{infrav1.AllNamespaces},
	}}
	secret := &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey: keys.Certificate, corev1.TLSPrivateKeyKey: keys.Key,
	}}
	for _, object := range []client.Object{secret, host} {
		if err := box.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("making a tenant's LXDHost: %w", err)
		}
	}
	t.hosts = append(t.hosts, host)
	return nil
}

// vmsOfOthers are what a lying LXD claims to have: the VMs of all clusters in production.
func (a *assault) vmsOfOthers() (vms []api.Instance) {
	for _, m := range a.view.all() {
		cluster := m.Labels["cluster.x-k8s.io/cluster-name"]
		owner := a.direct.ownerOf(cluster)
		name := maas.Hostname(m.Name, owner)
		if owner == "" || !m.Spec.IsLXD() {
			continue
		}
		vms = append(vms, api.Instance{
			Name: name, Type: string(api.InstanceTypeVM), Status: "Running", StatusCode: api.Running,
			Config: map[string]string{
				directhost.OwnerMark: owner, directhost.MachineMark: name, "limits.cpu": "1", "limits.memory": "2048MiB",
			},
		})
	}
	return vms
}

// end makes all servers honest, and checks that the tenants can leave, and that their servers were asked: otherwise
// they did no harm.
func (t *tenants) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	for what, all := range map[string][]harm{"MAAS": t.maases, "LXD": t.lxds} {
		for _, h := range all {
			asked := h.asked()
			t.a.figures.add(fmt.Sprintf("requests to a tenant's %s %s", h.name, what), asked)
			if asked == 0 {
				t.a.t.Errorf("a tenant's %s %s was never asked, and did no harm", h.name, what)
			}
			h.door.LeadsTo(h.honest)
		}
	}
	var errs []error
	for _, cluster := range t.clusters {
		errs = append(errs, cluster.delete(ctx))
	}
	for _, host := range t.hosts {
		errs = append(errs, t.leave(ctx, host))
	}
	return errors.Join(errs...)
}

// leave deletes an LXDHost, and waits until it is gone.
func (t *tenants) leave(ctx context.Context, host *infrav1.LXDHost) error {
	if err := box.Client.Delete(ctx, host); err != nil {
		return fmt.Errorf("deleting a tenant's LXDHost: %w", err)
	}
	return eventually.Wait(ctx, "the deletion of a tenant's LXDHost "+host.Name, func() (bool, string, error) {
		err := box.Client.Get(ctx, client.ObjectKeyFromObject(host), host)
		return apierrors.IsNotFound(err), sandbox.Conditions(host.Status.Conditions), client.IgnoreNotFound(err)
	})
}

// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/specs"
)

// walk leads objects of a kind through all changes of their specs that the API server accepts: each must end as an object
// that was made with the new spec, as far as users and MAAS can see.
type walk struct {
	*testing.T
	kind  specs.Kind
	judge *specs.Judge
	// make makes an object with a spec and returns it; it is number n.
	make func(n int, spec map[string]any) *unstructured.Unstructured
	// own moves a part of a spec to where the object is.
	own func(object *unstructured.Unstructured, part map[string]any) map[string]any
	// look returns what there is of an object in Kubernetes, MAAS and LXD, without what differs between two objects of the
	// same spec; "" while it has not been reconciled since it was changed.
	look func(object *unstructured.Unstructured) (string, error)

	w       *world
	mu      sync.Mutex
	made    int
	fresh   map[string]func() *unstructured.Unstructured
	moved   map[string]int // how many changes of a field showed anything, by its path
	judged  map[bool]int   // how many changes were accepted, and how many refused
	each    sync.WaitGroup
	state   sync.Mutex
	stateAt time.Time
	names   []string // of what MAAS had at that time
	slots   chan struct{}
}

func newWalk(w *world, kind string) *walk {
	w.t.Helper()
	kinds, err := specs.Kinds(filepath.Join("..", "charts", "capmaas", "files", "crds"))
	w.must(err)
	k := kinds[slices.IndexFunc(kinds, func(k specs.Kind) bool { return k.Name == kind })]
	judge, err := specs.NewJudge(k)
	w.must(err)
	const atOnce = 12
	return &walk{T: w.t, kind: k, judge: judge, w: w, fresh: map[string]func() *unstructured.Unstructured{}, moved: map[string]int{}, judged: map[bool]int{}, slots: make(chan struct{}, atOnce)}
}

// run walks the changes of each field from its value in a base, and with CAPMAAS_CHAOS=full all. unseen are the
// fields whose effect other tests see.
func (k *walk) run(skip func(specs.Group) bool, unseen ...string) {
	seen := map[string]bool{}
	for _, group := range k.kind.Groups() {
		if skip(group) || (len(group.Fields) > 1 && !chaos.Full()) {
			continue
		}
		var valid []map[string]any
		for _, spec := range group.Specs {
			if stored, problems := k.judge.Create(spec); len(problems) == 0 {
				valid = append(valid, stored)
			}
		}
		for i, from := range valid {
			for _, to := range valid {
				key := specs.Text(from) + specs.Text(to)
				if (i > 0 && !chaos.Full()) || specs.Text(from) == specs.Text(to) || seen[key] || len(k.judge.Update(from, to)) > 0 {
					continue
				}
				seen[key] = true
				k.each.Go(func() {
					k.slots <- struct{}{}
					defer func() { <-k.slots }()
					if k.Failed() { // Each change that does not follow costs a whole wait.
						return
					}
					k.change(group, from, to)
				})
			}
		}
	}
	k.each.Wait()
	if k.Failed() {
		return
	}
	for _, f := range k.kind.Fields() {
		row := specs.RowOf(k.kind.Name, f.Path)
		isUnseen := slices.ContainsFunc(unseen, func(path string) bool { return strings.HasPrefix(f.Path, path) })
		if n, walked := k.moved[f.Path]; walked && n == 0 && !isUnseen && row != nil && row.Effect == specs.Follows {
			k.Errorf("no change of %s shows anything: the walk does not see whether it follows", f.Path)
		}
	}
	k.Logf("%d changes ended as if made afresh, %d were refused when the object had lived", k.judged[true], k.judged[false])
}

// another makes one more object.
func (k *walk) another(spec map[string]any) *unstructured.Unstructured {
	k.mu.Lock()
	k.made++
	n := k.made
	k.mu.Unlock()
	return k.make(n, spec)
}

// asMade returns an object that was made with a spec, once it is at rest.
func (k *walk) asMade(spec map[string]any) *unstructured.Unstructured {
	k.mu.Lock()
	text := specs.Text(spec)
	if k.fresh[text] == nil {
		k.fresh[text] = sync.OnceValue(func() *unstructured.Unstructured {
			object := k.another(spec)
			k.rests(object)
			return object
		})
	}
	once := k.fresh[text]
	k.mu.Unlock()
	return once()
}

// remove deletes an object that was seen, so that the manager has no more to do than at the beginning of the walk.
func (k *walk) remove(object *unstructured.Unstructured) {
	if err := k.w.client.Delete(k.Context(), object); err != nil {
		k.Errorf("deleting %s: %v", object.GetName(), err)
	}
}

// rests waits until there is the same of an object several times. It may change later all the same, where reconciles take
// long.
func (k *walk) rests(object *unstructured.Unstructured) {
	last, same := "", 0
	err := eventually.Wait(k.Context(), object.GetName()+" to be at rest", func() (bool, string, error) {
		now, err := k.look(object)
		if same++; now != last {
			last, same = now, 0
		}
		return now != "" && same >= restingLooks, now, client.IgnoreNotFound(err)
	})
	if err != nil {
		k.Error(err)
	}
}

// restingLooks is how often there has to be the same of an object, one look after the other.
const restingLooks = 8

// becomes waits until there is the same of an object as of another one, at the same time, and returns it.
func (k *walk) becomes(object, other *unstructured.Unstructured, what string) (now string, ok bool) {
	want := ""
	err := eventually.Wait(k.Context(), object.GetName()+" to be as "+other.GetName(), func() (_ bool, _ string, err error) {
		if now, err = k.look(object); err == nil {
			want, err = k.look(other)
		}
		return now != "" && now == want, "another result", client.IgnoreNotFound(err)
	})
	if err != nil {
		k.Errorf("%s: %v (-made +now):\n%s", what, err, cmp.Diff(strings.Split(want, "\n"), strings.Split(now, "\n")))
	}
	return now, err == nil
}

func (k *walk) change(group specs.Group, from, to map[string]any) {
	made, object := k.another(to), k.another(from)
	defer k.remove(made)
	defer k.remove(object)
	k.rests(made)
	before, ok := k.becomes(object, k.asMade(from), "two objects with "+specs.Text(from))
	if !ok {
		return
	}
	want := ""
	refused := k.patch(object, from, to)
	if refused == nil {
		want, _ = k.becomes(object, made, fmt.Sprintf("%s of %q: a change from\n  %s to\n  %s", group.Fields, group.Base, specs.Text(from), specs.Text(to)))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.judged[refused == nil]++
	for _, path := range group.Fields {
		k.moved[path] += 0
		if refused == nil && want != before {
			k.moved[path]++
		}
	}
}

// patch changes what differs between two specs, as a user does. It returns why the API server refuses that, now that the
// provider has written into the spec, too.
func (k *walk) patch(object *unstructured.Unstructured, from, to map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": k.own(object, difference(from, to))})
	if err != nil {
		k.Error(err)
	}
	err = k.w.client.Patch(k.Context(), object, client.RawPatch(client.Merge.Type(), patch))
	if err != nil && !apierrors.IsInvalid(err) {
		k.Errorf("changing %s: %v", object.GetName(), err)
	}
	return err
}

// difference returns the merge patch that makes one object of another.
func difference(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name, value := range to {
		before, had := from[name]
		a, isA := before.(map[string]any)
		b, isB := value.(map[string]any)
		switch {
		case isA && isB:
			if below := difference(a, b); len(below) > 0 {
				patch[name] = below
			}
		case !had || !cmp.Equal(before, value):
			patch[name] = value
		}
	}
	for name := range from {
		if _, stays := to[name]; !stays {
			patch[name] = nil
		}
	}
	return patch
}

// own moves the test's network to one that object number n has for itself: an address is reserved once.
func own(n int, text string) string {
	return strings.ReplaceAll(text, "10.77.0.", networkOf(n))
}

func networkOf(n int) string { return fmt.Sprintf("10.%d.%d.", 100+n/200, n%200) }

func walkName(n int) string { return fmt.Sprintf("walk-%04d", n) }

func numberOf(object client.Object) (n int) {
	_, _ = fmt.Sscanf(object.GetName(), "walk-%d", &n)
	return n
}

// makeCluster makes a Cluster and its MaasCluster.
func (k *walk) makeCluster(n int, spec map[string]any) *unstructured.Unstructured {
	w, name := k.w, walkName(n)
	w.maasCall(http.MethodPost, "subnets/", url.Values{"cidr": {networkOf(n) + "0/24"}})
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: name},
		ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: name},
	}}
	w.create(cluster)
	object := &unstructured.Unstructured{Object: parsed(k.T, `{"spec":`+own(n, specs.Text(spec))+`}`)}
	object.SetGroupVersionKind(infrav1.GroupVersion.WithKind("MaasCluster"))
	object.SetNamespace(w.namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: name})
	w.own(cluster, object)
	w.create(object)
	return object
}

func parsed(t *testing.T, text string) map[string]any {
	object := map[string]any{}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Error(err)
	}
	return object
}

// lookAtCluster returns a MaasCluster's status, endpoint, finalizers and annotations, and what MAAS has of it.
func (k *walk) lookAtCluster(object *unstructured.Unstructured) (string, error) {
	c := &infrav1.MaasCluster{}
	if err := k.w.sees(k.Context(), objectOf(object, c)); err != nil {
		return "", err
	}
	if c.Status.ObservedGeneration != c.Generation || conditions.Get(c, infrav1.ReadyCondition) == nil {
		return "", nil
	}
	id := c.Annotations[infrav1.OwnerIDAnnotation]
	label, there := maas.EndpointLabel(c.Name, id), []string{}
	for _, one := range k.inMAAS() {
		if strings.Contains(one, label) || strings.Contains(one, networkOf(numberOf(c))) {
			there = append(there, one)
		}
	}
	c.Status.ObservedGeneration = 0
	for i := range c.Status.Conditions {
		c.Status.Conditions[i].LastTransitionTime, c.Status.Conditions[i].ObservedGeneration = metav1.Time{}, 0
	}
	content, err := json.MarshalIndent(map[string]any{
		"status": c.Status, "endpoint": c.Spec.ControlPlaneEndpoint, "finalizers": c.Finalizers, "annotations": c.Annotations, "maas": there,
	}, "", " ")
	text := strings.NewReplacer(label, "LABEL", c.Name, "NAME", networkOf(numberOf(c)), "10.77.0.").Replace(string(content))
	if id != "" {
		text = strings.ReplaceAll(text, id, "OWNER")
	}
	return aTime.ReplaceAllString(text, "TIME"), err
}

// inMAAS returns the names and the reserved addresses that MAAS has, as of a moment ago: all who look share it.
func (k *walk) inMAAS() []string {
	k.state.Lock()
	defer k.state.Unlock()
	if time.Since(k.stateAt) < 100*time.Millisecond {
		return k.names
	}
	var state struct {
		Names []struct {
			FQDN      string `json:"fqdn"`
			Addresses int
		} `json:"dns_resources"`
		Addresses []struct{ IP string } `json:"ip_addresses"`
	}
	if err := json.Unmarshal(k.w.maas.State(), &state); err != nil {
		k.Error(err)
	}
	k.names, k.stateAt = nil, time.Now()
	for _, name := range state.Names {
		k.names = append(k.names, fmt.Sprintf("%s with %d addresses", name.FQDN, name.Addresses))
	}
	for _, address := range state.Addresses {
		k.names = append(k.names, "reserved: "+address.IP)
	}
	slices.Sort(k.names)
	return k.names
}

var aTime = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)

// objectOf gives a typed object the name of another one.
func objectOf(of client.Object, into client.Object) client.Object {
	into.SetNamespace(of.GetNamespace())
	into.SetName(of.GetName())
	return into
}

const walkRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret", "some:token:secret", "other:token:secret"]}]
zones: [{name: zone-a}, {name: zone-b}, {name: zone-c}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.10.0.0/24, gateway: 10.10.0.1, dhcp: true}]
images: [{name: ubuntu/jammy}]
machines: []
`

func TestAChangedMaasClusterIsAsMadeAfresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region, w.ownMAAS, w.concurrency = walkRegion, true, 16 })
	for _, name := range []string{"some", "other", "nodes"} {
		key := name
		if name == "nodes" {
			key = "some"
		}
		w.create(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
			StringData: map[string]string{"endpoint": w.maasURL, "apiKey": key + ":token:secret"},
		})
	}
	k := newWalk(w, "MaasCluster")
	k.make, k.look = k.makeCluster, k.lookAtCluster
	k.own = func(object *unstructured.Unstructured, patch map[string]any) map[string]any {
		return parsed(t, own(numberOf(object), specs.Text(patch)))
	}
	// Of host clusters TestTheNodesOfAHostClusterFollowItsSpec, of addresses TestAddressesFollowTheSpecOfTheirCluster, and of a
	// virtual IP, which can't be changed once there is an endpoint, TestVirtualIPThatIsChangedBeforeItIsKnown.
	// A MaasCluster with clusterName is no infrastructure, as those of the walk are.
	k.run(func(group specs.Group) bool {
		return slices.ContainsFunc(group.Specs, func(spec map[string]any) bool { return spec["clusterName"] != nil })
	}, ".lxdConfig", ".preferred", ".virtualIP")
}

// walkedLXD is where the LXDHosts of a walk lead.
type walkedLXD struct {
	*lab
}

func TestAChangedLXDHostIsAsMadeAfresh(t *testing.T) {
	t.Parallel()
	lxdtest.Require(t)
	w := newWorld(t, func(w *world) {
		w.ownMAAS, w.concurrency, w.hostInterval, w.version = true, 16, readOften, "4.0"
		w.region = strings.Replace(walkRegion, "images:", "pools: [{name: pool-a}]\nimages:", 1)
	})
	l := &walkedLXD{lab: newLab(w)}
	for _, name := range []string{"some", "other"} { // Both lead to MAAS, and one to LXD.
		data := map[string][]byte{"endpoint": []byte(w.maasURL), "apiKey": []byte(name + ":token:secret")}
		if name == "some" {
			data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = l.keys.Certificate, l.keys.Key
		}
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, Data: data})
	}
	w.create(l.secret())
	k := newWalk(w, "LXDHost")
	k.make = func(n int, spec map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": l.own(t, spec)}}
		object.SetGroupVersionKind(infrav1.GroupVersion.WithKind("LXDHost"))
		object.SetNamespace(w.namespace)
		object.SetName(walkName(n))
		w.create(object)
		return object
	}
	k.own = func(_ *unstructured.Unstructured, patch map[string]any) map[string]any { return l.own(t, patch) }
	k.look = func(object *unstructured.Unstructured) (string, error) { return l.look(k, object) }
	k.run(func(group specs.Group) bool {
		isClosed := group.Base == "direct, and closed" && (group.Fields[0] == ".unschedulable" || group.Fields[0] == ".evacuate")
		return group.Base != "direct" && !isClosed // Those of VM hosts are the mirror's.
	})
}

// own moves a spec to the LXD of the test.
func (l *walkedLXD) own(t *testing.T, spec map[string]any) map[string]any {
	moved := parsed(t, specs.Text(spec))
	for field, places := range map[string]map[any]any{
		"address":           {"10.77.0.11:8443": l.address, "10.77.0.12": "127.0.0.1:1"},
		"serverCertificate": {"-----BEGIN CERTIFICATE----- a": string(l.options.ServerCertificate), "-----BEGIN CERTIFICATE----- b": string(l.keys.Certificate)},
	} {
		if place, is := places[moved[field]]; is {
			moved[field] = place
		}
	}
	return moved
}

// look returns the status of an LXDHost, its finalizers and annotations, and what placement knows of it.
func (l *walkedLXD) look(k *walk, object *unstructured.Unstructured) (string, error) {
	host := &infrav1.LXDHost{}
	if err := l.w.sees(k.Context(), objectOf(object, host)); err != nil {
		return "", err
	}
	status := &host.Status
	if status.ObservedGeneration != host.Generation || conditions.Get(host, infrav1.ReadyCondition) == nil {
		return "", nil
	}
	status.ObservedGeneration = 0
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime, status.Conditions[i].ObservedGeneration = metav1.Time{}, 0
	}
	if !conditions.IsTrue(host, infrav1.ReachableCondition) || !conditions.IsTrue(host, infrav1.TrustedCondition) {
		// What the LXD last said stays, if it is the same (TestADirectLXDHost).
		*status = infrav1.LXDHostStatus{Conditions: status.Conditions, Evacuation: status.Evacuation}
		conditions.Delete(host, infrav1.KeysCurrentCondition)
	}
	for i := range status.StoragePools { // Others use the disk, too.
		status.StoragePools[i].Free = 0
	}
	for _, figures := range []*infrav1.LXDResources{status.Capacity, status.Free} {
		if figures != nil {
			figures.Disk = 0
		}
	}
	region, err := l.w.scopes.Own()
	if err != nil {
		return "", err
	}
	hosts, err := region.Machines.LXD().KnownLXDHosts(k.Context(), lxd.VMSpec{Namespace: l.w.namespace})
	if err != nil && !lxd.IsRefusal(err) {
		return "", err
	}
	var placed any
	if at := slices.IndexFunc(hosts, func(h lxd.Host) bool { return h.Name == host.Name }); at >= 0 {
		h := hosts[at]
		o := h.Object
		placed = map[string]any{
			"zone": h.Zone, "pool": h.Pool, "tags": h.Tags, "reachable": h.Reachable, "largest": h.Capacity,
			"unschedulable": o.Unschedulable, "direct": o.Direct, "bridge": o.Bridge, "storage": o.StoragePool, "subnet": o.Subnet,
			"nameservers": o.Nameservers, "overcommit": o.Overcommit, "devices": o.AllowedDevices,
			"team-a": o.Allows("team-a"), "team-b": o.Allows("team-b"),
		}
	}
	content, err := json.MarshalIndent(map[string]any{
		"status": status, "finalizers": host.Finalizers, "annotations": host.Annotations, "placement": placed,
	}, "", " ")
	return strings.NewReplacer(host.Name, "NAME").Replace(string(content)), err
}

// The initializer's objects do not depend on what the spec was before.
func TestTheNodesOfAHostClusterFollowItsSpec(t *testing.T) {
	t.Parallel()
	w, cluster := hostWorld(t)
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "some", Namespace: w.namespace},
		StringData: map[string]string{"endpoint": w.maasURL, "apiKey": "admin:token:secret"},
	})
	k := newWalk(w, "MaasCluster")
	var walked []map[string]any
	for _, group := range k.kind.Groups() {
		if group.Base != "host cluster" || len(group.Fields) > 1 || !strings.HasPrefix(group.Fields[0], ".lxdConfig") {
			continue
		}
		for _, spec := range group.Specs {
			config, _ := spec["lxdConfig"].(map[string]any)
			ref, _ := config["credentialsRef"].(map[string]any)
			stored, problems := k.judge.Create(map[string]any{"lxdControlPlaneCluster": true, "lxdConfig": spec["lxdConfig"]})
			if spec["lxdConfig"] != nil && len(problems) == 0 && (ref == nil || ref["name"] != "other") {
				walked = append(walked, stored)
			}
		}
	}
	slices.SortFunc(walked, func(a, b map[string]any) int { return strings.Compare(specs.Text(a), specs.Text(b)) })
	there := map[string]string{}
	for _, spec := range append(slices.Clone(walked), reversed(walked)...) {
		config := &infrav1.LXDHostConfig{}
		w.must(json.Unmarshal([]byte(specs.Text(spec["lxdConfig"].(map[string]any))), config))
		w.patch(cluster, func() { cluster.Spec.LXDConfig = config })
		changed := cluster.Generation
		w.eventually(cluster, "seen", func() bool { return cluster.Status.ObservedGeneration >= changed })
		now := w.initializerObjects()
		if before, known := there[specs.Text(spec)]; known && before != now {
			t.Errorf("with %s the nodes get other objects than before:\n%s", specs.Text(spec), cmp.Diff(before, now))
		}
		there[specs.Text(spec)] = now
	}
	if kinds := len(there); kinds < 8 {
		t.Errorf("there were %d different specs", kinds)
	}
}

func reversed[T any](all []T) []T {
	turned := slices.Clone(all)
	slices.Reverse(turned)
	return turned
}

// initializerObjects returns what the nodes of the host cluster get of its spec.
func (w *world) initializerObjects() string {
	w.t.Helper()
	daemonSet, secret, config := &appsv1.DaemonSet{}, &corev1.Secret{}, &corev1.ConfigMap{}
	for name, object := range map[string]client.Object{charts.InitializerName: daemonSet, "maas-credentials": secret, "capmaas-config": config} {
		w.must(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "capmaas-system", Name: name}, object))
	}
	content, err := json.MarshalIndent([]any{daemonSet.Spec, secret.Data, config.Data}, "", " ")
	w.must(err)
	return string(content)
}

// A deployed control plane's first address, which the endpoint leads to, is chosen anew at each change.
func TestAddressesFollowTheSpecOfTheirCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region = twoNetworks })
	cluster := w.provisionedCluster()
	m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) {
		s.LXDConfig = &infrav1.LXDMachineConfig{Network: infrav1.LXDNetwork{Devices: []infrav1.LXDNetworkDevice{
			{Name: "eth0", Bridge: "br0"}, {Name: "eth1", Subnet: "10.78.0.0/24"},
		}}}
	}))
	w.deployed(m)
	for _, step := range []struct {
		subnets, interfaces []string
		network             string
	}{
		{nil, nil, "10.77.0."},
		{[]string{"10.78.0.0/24"}, nil, "10.78.0."},
		{[]string{"10.77.0.0/24", "10.78.0.0/24"}, nil, "10.77.0."},
		{nil, []string{"eth1"}, "10.78.0."},
		{[]string{"10.77.0.0/24"}, []string{"eth1", "eth0"}, "10.78.0."},
		{[]string{"10.78.0.0/24"}, []string{"eth0"}, "10.77.0."},
		{[]string{"10.78.0.0/24"}, nil, "10.78.0."},
		{nil, nil, "10.77.0."},
	} {
		w.patch(cluster, func() {
			cluster.Spec.PreferredSubnets, cluster.Spec.PreferredInterfaces = step.subnets, step.interfaces
		})
		w.eventually(m, "first at "+step.network, func() bool {
			led := w.endpoint(cluster)
			return len(m.Status.Addresses) > 1 && strings.HasPrefix(m.Status.Addresses[0].Address, step.network) &&
				slices.Equal(led, []string{m.Status.Addresses[0].Address})
		})
	}
}

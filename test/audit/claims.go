// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// cluster is a MaasCluster that is there or was.
type cluster struct {
	namespace, name string
	owner           string // its owner id
	endpoint        string // the DNS name that it would have in MAAS
	external        bool   // its endpoint is not ours
	virtualIP       string // the address that MAAS has reserved for it; "" if there is none, or none yet
}

// identity distinguishes clusters, even with the same mark.
type identity struct{ namespace, name, owner string }

func (c cluster) identity() identity { return identity{c.namespace, c.name, c.owner} }

// object is a MaasMachine.
type object struct {
	infrav1.MaasMachine
	cluster cluster // without an owner id where the MaasCluster is gone
	// held means that the object had recorded its machine already when MAAS was read.
	held bool
	// kept means that it is gone, and that its MaasCluster keeps its machine for the next one, or gives it back.
	kept, givenBack bool
}

func (o *object) String() string {
	if o.kept {
		return "MaasCluster " + o.Namespace + "/" + o.cluster.name + ", which keeps the machine of " + o.Name + ","
	}
	return "MaasMachine " + o.Namespace + "/" + o.Name
}

// staticIP is the address that its machine has on purpose; "" if there is none.
func (o *object) staticIP() string {
	if o.kept {
		return o.Annotations[infrav1.StaticIPAnnotation]
	}
	return o.Spec.StaticIP
}

// agentName and hostname are the marks that its machine has in MAAS.
func (o *object) agentName() string { return "capmaas/" + o.cluster.owner + "/" + o.Name }
func (o *object) hostname() string  { return maas.Hostname(o.Name, o.cluster.owner) }

func (o *object) isControlPlane() bool {
	_, is := o.Labels[clusterv1.MachineControlPlaneLabel]
	return is
}

// claims are the contents of Kubernetes.
type claims struct {
	clusters []cluster
	objects  []*object
}

// readClaims reads the MaasClusters and MaasMachines of the namespaces whose MAAS it is.
func readClaims(ctx context.Context, reader client.Reader, in func(namespace string) bool) (*claims, error) {
	clusters, machines := &infrav1.MaasClusterList{}, &infrav1.MaasMachineList{}
	for _, list := range []client.ObjectList{clusters, machines} {
		if err := reader.List(ctx, list); err != nil {
			return nil, fmt.Errorf("reading what Kubernetes claims: %w", err)
		}
	}
	clusters.Items = slices.DeleteFunc(clusters.Items, func(m infrav1.MaasCluster) bool { return !in(m.Namespace) })
	machines.Items = slices.DeleteFunc(machines.Items, func(m infrav1.MaasMachine) bool { return !in(m.Namespace) })
	c, byLabel := &claims{}, map[client.ObjectKey]cluster{}
	for i := range clusters.Items {
		m := &clusters.Items[i]
		one := cluster{namespace: m.Namespace, name: m.Name, owner: m.Annotations[infrav1.OwnerIDAnnotation]}
		if one.owner == "" {
			continue // Nothing was done for it yet.
		}
		one.endpoint = maas.EndpointLabel(m.Name, one.owner) + "." + strings.TrimSuffix(m.Spec.DNSDomain, ".")
		_, custom := m.Annotations[infrav1.CustomDNSAnnotation]
		host := m.Spec.ControlPlaneEndpoint.Host
		if m.Spec.VirtualIP != nil {
			one.virtualIP = canonical(host)
		} else {
			one.external = custom || (host != "" && host != one.endpoint)
		}
		c.clusters = append(c.clusters, one)
		kept, err := keptBy(m, one)
		if err != nil {
			return nil, err
		}
		c.objects = append(c.objects, kept...)
		byLabel[client.ObjectKey{Namespace: m.Namespace, Name: m.Labels[clusterv1.ClusterNameLabel]}] = one
	}
	for _, m := range machines.Items {
		// While it goes, and while its machine is given back, it is there beside the record.
		c.objects = slices.DeleteFunc(c.objects, func(o *object) bool { return o.kept && o.Namespace == m.Namespace && o.Name == m.Name })
		key := client.ObjectKey{Namespace: m.Namespace, Name: m.Labels[clusterv1.ClusterNameLabel]}
		c.objects = append(c.objects, &object{MaasMachine: m, cluster: byLabel[key]})
	}
	return c, nil
}

// keptBy returns the MaasMachines that are gone and whose machines a MaasCluster keeps. A machine that is being taken is the
// next one's.
func keptBy(m *infrav1.MaasCluster, one cluster) (gone []*object, err error) {
	recorded, err := record.OfCluster(m)
	if err != nil {
		return nil, fmt.Errorf("reading the record of MaasCluster %s/%s: %w", m.Namespace, m.Name, err)
	}
	for _, k := range recorded.Kept {
		if k.TakenBy != "" {
			continue
		}
		was := infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: k.Machine, Labels: k.Labels, Annotations: k.Annotations}, Spec: k.Spec}
		was.Spec.SystemID = k.SystemID
		gone = append(gone, &object{MaasMachine: was, cluster: one, kept: true, givenBack: k.GivenBack})
	}
	return gone, nil
}

// since records which objects have had their machines since an earlier read.
func (c *claims) since(before *claims) {
	type who struct {
		namespace, name string
		uid             types.UID
	}
	had := map[who]string{}
	for _, o := range before.objects {
		had[who{o.Namespace, o.Name, o.UID}] = o.Spec.SystemID
	}
	for _, o := range c.objects {
		o.held = had[who{o.Namespace, o.Name, o.UID}] == o.Spec.SystemID
	}
}

// canonical is an address as MAAS writes it.
func canonical(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.String()
	}
	return address
}

// keeps reports whether MAAS keeps an address for one of the clusters.
func keeps(clusters []cluster, address string) bool {
	return slices.ContainsFunc(clusters, func(one cluster) bool { return one.virtualIP != "" && one.virtualIP == canonical(address) })
}

// holders are the objects that have recorded a machine.
func (c *claims) holders(systemID string) []*object {
	return slices.DeleteFunc(slices.Clone(c.objects), func(o *object) bool { return o.Spec.SystemID != systemID })
}

// gaveBack reports whether the object is being deleted, or its machine given back, and that has no mark of it any more:
// another user may have the machine.
func (o *object) gaveBack(m simulator.MachineSnapshot) bool {
	return (o.givenBack || !o.DeletionTimestamp.IsZero()) && o.agentName() != m.AgentName && o.hostname() != m.Hostname
}

// marked returns the object for which a machine was acquired, by its marks. A hostname counts if there is no other
// mark.
func (c *claims) marked(m simulator.MachineSnapshot) *object {
	for _, o := range c.objects {
		if o.cluster.owner != "" && o.agentName() == m.AgentName && !o.denied(m) {
			return o
		}
	}
	for _, o := range c.objects {
		if o.cluster.owner != "" && o.Spec.IsLXD() && o.hostname() == m.Hostname && !o.denied(m) {
			return o
		}
	}
	return nil
}

// denied reports whether the marks on a machine are those of another object.
func (o *object) denied(m simulator.MachineSnapshot) bool {
	if m.AgentName != "" && m.AgentName != o.agentName() {
		return true
	}
	owner, name := m.Annotations[ownership.AnnotationOwner], m.Annotations[ownership.AnnotationMachine]
	return owner != "" && owner != o.cluster.owner || name != "" && name != o.Namespace+"."+o.Name
}

// isRunning reports whether the object reports that its machine runs.
func (o *object) isRunning() bool {
	return o.DeletionTimestamp.IsZero() && (o.Status.DNSAttached || conditions.IsTrue(o, infrav1.MachineDeployedCondition))
}

// left are objects of clusters that should be gone.
func (c *claims) left(who Who) []Finding {
	var findings []Finding
	for _, one := range c.clusters {
		if who.covers(one) {
			findings = append(findings, Finding{Leaked, fmt.Sprintf("MaasCluster %s/%s is still there", one.namespace, one.name)})
		}
	}
	for _, o := range c.objects {
		if o.kept {
			continue // With its MaasCluster.
		}
		if who.everybody() || (o.cluster.owner != "" && who.covers(o.cluster)) {
			findings = append(findings, Finding{Leaked, o.String() + " is still there"})
		}
	}
	return findings
}

// without returns the claims of others: what is audited as gone has none.
func (c *claims) without(who Who) *claims {
	if who.everybody() {
		return &claims{}
	}
	return &claims{
		clusters: slices.DeleteFunc(slices.Clone(c.clusters), who.covers),
		objects: slices.DeleteFunc(slices.Clone(c.objects), func(o *object) bool {
			return o.cluster.owner != "" && who.covers(o.cluster)
		}),
	}
}

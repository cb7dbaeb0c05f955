// SPDX-License-Identifier: Apache-2.0

// Package orphans finds machines in MAAS that carry the marks of this provider and that no object in Kubernetes claims,
// and removes them on request. It gives proof for each finding.
//
// A machine is called an orphan only if its former owner is known. The proof is the owner id: it is random and belongs
// to one MaasCluster, and it is in the workload annotations of each machine that was deployed, and as a hash in the
// hostname of each VM. A second mark, the id of the management cluster, separates two management clusters with the same
// owner id: after `clusterctl move` the new one marks the machines again, and a stale copy in the old one must not
// touch them. It is also the only mark that identifies a machine whose MaasCluster is gone. It proves less than the
// owner id. So a machine that only this mark identifies, or whose mark is another cluster's, is in doubt: it is shown,
// and not removed before a person vouches for it.
package orphans

import (
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

// Cluster is a MaasCluster.
type Cluster struct {
	Namespace, Name string
	OwnerID         string
	// Paused: no machine of it is called an orphan. `clusterctl move` pauses a cluster while its objects are incomplete
	// on both sides.
	Paused bool
}

func (c Cluster) String() string { return c.Namespace + "/" + c.Name }

// Object is a MaasMachine; SystemID is "" while none is recorded.
type Object struct {
	Namespace, Name string
	SystemID        string
}

func (o Object) String() string { return o.Namespace + "/" + o.Name }

// Claims are the machines that objects in Kubernetes refer to, including objects that are being deleted.
type Claims struct {
	management, namespace string
	clusters              map[string]Cluster // by owner id
	suffixes              map[string]Cluster // by maas.HostnameSuffixes
	systemIDs, hostnames  map[string]Object
	objects               map[string]Object // by namespace and name, as in the annotation
}

// NewClaims joins the objects. management is the id of the management cluster, or "" if it is not known. The objects
// were read in this namespace only, or in all if it is "". They must have been read after the machines that are judged:
// each machine has its object before MAAS is asked for it.
func NewClaims(management, namespace string, clusters []Cluster, machines []Object) *Claims {
	c := &Claims{
		management: management, namespace: namespace,
		clusters: map[string]Cluster{}, suffixes: map[string]Cluster{},
		systemIDs: map[string]Object{}, hostnames: map[string]Object{}, objects: map[string]Object{},
	}
	owners := map[string][]string{} // by namespace
	for _, cluster := range clusters {
		if cluster.OwnerID == "" {
			continue
		}
		c.clusters[cluster.OwnerID] = cluster
		for _, suffix := range maas.HostnameSuffixes(cluster.OwnerID) {
			c.suffixes[suffix] = cluster
		}
		owners[cluster.Namespace] = append(owners[cluster.Namespace], cluster.OwnerID)
	}
	for _, object := range machines {
		c.objects[object.Namespace+"."+object.Name] = object
		if object.SystemID != "" {
			c.systemIDs[object.SystemID] = object
		}
		// Which cluster it belongs to does not matter: a superfluous claimed name does no harm.
		for _, owner := range owners[object.Namespace] {
			c.hostnames[maas.Hostname(object.Name, owner)] = object
		}
	}
	return c
}

// claimant returns the object that a machine belongs to. An object that has another machine does not claim this one by
// the annotation, which may be out of date.
func (c *Claims) claimant(m *maas.Machine) (Object, bool) {
	if object, ok := c.systemIDs[m.SystemID]; ok {
		return object, true
	}
	if object, ok := c.hostnames[m.Hostname]; ok {
		return object, true
	}
	object, ok := c.objects[m.WorkloadAnnotations[ownership.AnnotationMachine]]
	return object, ok && object.SystemID == ""
}

// sees reports whether objects of this namespace were read.
func (c *Claims) sees(namespace string) bool { return c.namespace == "" || c.namespace == namespace }

// SPDX-License-Identifier: Apache-2.0

// Package orphans finds machines in MAAS that carry the marks of this provider and that no object in Kubernetes claims, proves
// what it says, and removes them when it is told to.
//
// A machine is only called an orphan when it is known whose it was. The proof is the owner id: it is random, it is that of one
// MaasCluster, and it is in the workload annotations of each machine that was deployed, and as a hash in the hostname of each
// VM. A second mark, the id of the management cluster, tells apart what two management clusters know of the same owner id: after
// `clusterctl move` the new one marks the machines anew, a stale copy of the old one must not touch them, and it is the only
// mark left to know a machine by whose MaasCluster is gone. It tells less than the owner id, so what is known by it alone, or
// in spite of it, is in doubt: it is shown, and not removed before a person vouches for it.
package orphans

import (
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

// Cluster is a MaasCluster.
type Cluster struct {
	Namespace, Name string
	OwnerID         string
	// Paused: nothing of it is called an orphan. `clusterctl move` pauses a cluster while its objects are incomplete on both sides.
	Paused bool
}

func (c Cluster) String() string { return c.Namespace + "/" + c.Name }

// Object is a MaasMachine; SystemID is "" while none is recorded.
type Object struct {
	Namespace, Name string
	SystemID        string
}

func (o Object) String() string { return o.Namespace + "/" + o.Name }

// Claims is all that Kubernetes says of machines, also through objects that are being deleted.
type Claims struct {
	management, namespace string
	clusters              map[string]Cluster // by owner id
	suffixes              map[string]Cluster // by maas.HostnameSuffix: a hostname that does not end in it is known only by its object
	systemIDs, hostnames  map[string]Object
	objects               map[string]Object // by namespace and name, as in the annotation
}

// NewClaims puts together what was read. management is the id of the management cluster, or "" where it is not known. Objects were
// read in this namespace only, or in all where it is "". The objects must have been read after the machines that are judged: each
// machine has its object before MAAS is asked for it.
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
		c.suffixes[maas.HostnameSuffix(cluster.OwnerID)] = cluster
		owners[cluster.Namespace] = append(owners[cluster.Namespace], cluster.OwnerID)
	}
	for _, object := range machines {
		c.objects[object.Namespace+"."+object.Name] = object
		if object.SystemID != "" {
			c.systemIDs[object.SystemID] = object
		}
		// Of which cluster it is does not matter: a name too many that is claimed does no harm.
		for _, owner := range owners[object.Namespace] {
			c.hostnames[maas.Hostname(object.Name, owner)] = object
		}
	}
	return c
}

// claimant returns the object that a machine belongs to. One that has another machine does not claim this one by the annotation, which tells of
// the time when it was made.
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

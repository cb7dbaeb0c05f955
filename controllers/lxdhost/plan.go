// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// maxName bounds the part of an object's name that is the VM host's.
const maxName = 200

// sighting is a VM host that a MAAS showed.
type sighting struct {
	maas.VMHost
	where   string // the MAAS
	isOwn   bool   // It is that of the manager's own credentials.
	machine *maas.Machine
	// owner is the MaasMachine that MAAS proved to be the machine that the VM host runs on; nil if there is none.
	owner *infrav1.MaasMachine
	// users are the namespaces that use the MAAS.
	users []string
}

// sightings returns what the MAASes showed, in a fixed order. Two URLs are two MAASes, whatever they show: a MAAS that
// was restored from the database of another shows the same ids and machines, and any user can make a server that does.
func sightings(views map[string]*view, own string) []*sighting {
	var all []*sighting
	for _, where := range slices.Sorted(maps.Keys(views)) {
		v := views[where]
		for _, id := range slices.Sorted(maps.Keys(v.hosts)) {
			host := v.hosts[id]
			all = append(all, &sighting{VMHost: host, where: where, isOwn: where == own,
				machine: v.machines[host.Host.SystemID]})
		}
	}
	return all
}

// isOf reports whether an LXDHost is that of a VM host.
func isOf(host *infrav1.LXDHost, s *sighting) bool {
	ref := host.Spec.VMHost
	return ref != nil && int(ref.ID) == s.ID && host.Annotations[infrav1.MAASAnnotation] == s.where
}

// wasOf reports whether an LXDHost is that of a VM host from when the manager's own MAAS had another URL. Of no other
// MAAS is it known that it is the same.
func wasOf(host *infrav1.LXDHost, s *sighting, views map[string]*view) bool {
	ref := host.Spec.VMHost
	return s.isOwn && views[host.Annotations[infrav1.MAASAnnotation]] == nil &&
		ref != nil && int(ref.ID) == s.ID && ref.SystemID != "" && ref.SystemID == s.Host.SystemID
}

// names returns the names for the object of a VM host, in order of preference. In another MAAS than the manager's own
// there may be VM hosts of the same name.
func (s *sighting) names(isOwn bool) []string {
	name := dnsName(s.Name)
	if !isOwn {
		name += fmt.Sprintf("-%x", sha256.Sum256([]byte(s.where)))[:7]
	}
	return []string{name, fmt.Sprintf("%s-%d", name, s.ID)}
}

// isNamed reports whether a name is one that the object of a VM host may have got, now or when the manager had other
// credentials.
func (s *sighting) isNamed(name string) bool {
	return slices.Contains(s.names(true), name) || slices.Contains(s.names(false), name)
}

// follows reports whether a VM host is one that may have been registered anew, and had this LXDHost before, or whose
// object wants its name.
func (s *sighting) follows(host *infrav1.LXDHost) bool {
	id := host.Spec.VMHost.SystemID
	isSame := id != "" && id == s.Host.SystemID && host.Annotations[infrav1.MAASAnnotation] == s.where
	return isSame || s.isNamed(host.Name)
}

// dnsName makes a name one of Kubernetes: the name of a VM host may have capitals and other characters.
func dnsName(name string) string {
	mapped := strings.Map(func(c rune) rune {
		if (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, strings.ToLower(name))
	var labels []string
	for label := range strings.SplitSeq(mapped, ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, label)
		}
	}
	joined := strings.Join(labels, ".")
	if joined == "" {
		return "vm-host"
	}
	return strings.TrimRight(joined[:min(len(joined), maxName)], "-.")
}

// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// maxName bounds the part of an object's name that is the VM host's.
const maxName = 200

// sighting is a VM host that MAAS showed.
type sighting struct {
	maas.VMHost
	where   []string // the MAASes that show it: one, or the same one under several names
	machine *maas.Machine
}

// sightings joins what the MAASes showed, in a fixed order, that of the manager's own credentials first. The same MAAS
// under another name shows the same ids and machines; what the first one says of them counts.
func sightings(views map[string]*view, own string) []*sighting {
	var all []*sighting
	order := slices.Sorted(maps.Keys(views))
	slices.SortStableFunc(order, func(a, b string) int {
		switch own {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	for _, where := range order {
		v := views[where]
		for _, id := range slices.Sorted(maps.Keys(v.hosts)) {
			host := v.hosts[id]
			same := func(s *sighting) bool {
				return s.ID == id && s.Host.SystemID != "" && s.Host.SystemID == host.Host.SystemID && !slices.Contains(s.where, where)
			}
			if at := slices.IndexFunc(all, same); at >= 0 {
				all[at].where = append(all[at].where, where)
				continue
			}
			all = append(all, &sighting{VMHost: host, where: []string{where}, machine: v.machines[host.Host.SystemID]})
		}
	}
	return all
}

// isOf reports whether an LXDHost is that of a VM host.
func isOf(host *infrav1.LXDHost, s *sighting) bool {
	ref := host.Spec.VMHost
	if ref == nil || int(ref.ID) != s.ID {
		return false
	}
	return slices.Contains(s.where, host.Annotations[infrav1.MAASAnnotation]) || (ref.SystemID != "" && ref.SystemID == s.Host.SystemID)
}

// home returns which MAAS the object of a VM host records: the one that it recorded, if it goes by that name still.
func (s *sighting) home(host *infrav1.LXDHost) string {
	if host != nil && slices.Contains(s.where, host.Annotations[infrav1.MAASAnnotation]) {
		return host.Annotations[infrav1.MAASAnnotation]
	}
	return s.where[0]
}

// names returns the names for the object of a VM host, in order of preference. own is the manager's own MAAS: elsewhere
// there may be VM hosts of the same name.
func (s *sighting) names(own string) []string {
	plain := dnsName(s.Name)
	hashed := plain + "-" + shortHash(s.where[0])
	if slices.Contains(s.where, own) {
		return []string{plain, fmt.Sprintf("%s-%d", plain, s.ID)}
	}
	return []string{hashed, fmt.Sprintf("%s-%d", hashed, s.ID)}
}

// isNamed reports whether a name is one that the object of a VM host may have got, now or when the manager had other
// credentials.
func (s *sighting) isNamed(name string) bool {
	for _, where := range s.where {
		at := *s
		at.where = []string{where}
		if slices.Contains(at.names(where), name) || slices.Contains(at.names(""), name) {
			return true
		}
	}
	return false
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

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:3])
}

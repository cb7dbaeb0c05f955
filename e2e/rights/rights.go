// SPDX-License-Identifier: Apache-2.0

// Package rights compares the rights of an identity in a cluster, from the rules of its roles, with the rights that it
// used, from the API server's audit log.
package rights

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Right is one verb on one resource, or on one path.
type Right struct {
	Verb string
	// Group and Resource; a subresource comes after a slash, as in rules.
	Group, Resource string
	// Name is the only object that it is for; "" is all.
	Name string
	// Namespace is the only one that it holds in; "" is all, and cluster-scoped resources.
	Namespace string
	// Path for non-resources. A * at the end stands for anything.
	Path string
}

// String is the right in a line: "get leases.coordination.k8s.io name in namespace".
func (r Right) String() string {
	if r.Path != "" {
		return r.Verb + " " + r.Path
	}
	text := r.Verb + " " + strings.TrimSuffix(r.Resource+"."+r.Group, ".")
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// Covers reports whether the right is one to a use. What is created, or is one of many, has no name, and no right to
// one name is a right to it.
func (r Right) Covers(u Right) bool {
	if r.Verb != u.Verb {
		return false
	}
	if r.Path != "" || u.Path != "" {
		prefix, open := strings.CutSuffix(r.Path, "*")
		return r.Path == u.Path || (open && strings.HasPrefix(u.Path, prefix))
	}
	return r.Group == u.Group && r.Resource == u.Resource && (r.Name == "" || r.Name == u.Name) && (r.Namespace == "" || r.Namespace == u.Namespace)
}

// Expand returns the rights of rules that hold in a namespace, or in "" everywhere. A wildcard becomes everything that
// the API server serves: it grants each of them, used or not.
func Expand(rules []rbacv1.PolicyRule, namespace string, served []*metav1.APIResourceList) []Right {
	var rights []Right
	for _, rule := range rules {
		for _, path := range rule.NonResourceURLs {
			for _, verb := range verbsOf(rule, pathVerbs) {
				rights = append(rights, Right{Verb: verb, Path: path})
			}
		}
		for _, r := range resourcesOf(rule, served) {
			for _, verb := range verbsOf(rule, r.verbs) {
				for _, name := range namesOf(rule) {
					rights = append(rights, Right{Verb: verb, Group: r.group, Resource: r.resource, Name: name, Namespace: namespace})
				}
			}
		}
	}
	return rights
}

// pathVerbs are what can be asked of a path that is no resource.
var pathVerbs = []string{"get", "post", "put", "patch", "delete", "head", "options"}

func verbsOf(rule rbacv1.PolicyRule, all []string) []string {
	if slices.Contains(rule.Verbs, rbacv1.VerbAll) {
		return all
	}
	return rule.Verbs
}

func namesOf(rule rbacv1.PolicyRule) []string {
	if len(rule.ResourceNames) == 0 {
		return []string{""}
	}
	return rule.ResourceNames
}

// resource is a resource of a rule; verbs are those that the API server has for it.
type resource struct {
	group, resource string
	verbs           []string
}

// resourcesOf are the resources that a rule names, whether they are served or not, and those that its wildcards stand
// for.
func resourcesOf(rule rbacv1.PolicyRule, served []*metav1.APIResourceList) []resource {
	var found []resource
	add := func(r resource) {
		if !slices.ContainsFunc(found, func(f resource) bool { return f.group == r.group && f.resource == r.resource }) {
			found = append(found, r)
		}
	}
	for _, list := range served { // First: they have verbs.
		group, _, hasGroup := strings.Cut(list.GroupVersion, "/")
		if !hasGroup {
			group = ""
		}
		if !slices.Contains(rule.APIGroups, rbacv1.APIGroupAll) && !slices.Contains(rule.APIGroups, group) {
			continue
		}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; namedBy(rule.Resources, r.Name) {
				add(resource{group, r.Name, r.Verbs})
			}
		}
	}
	for _, group := range rule.APIGroups {
		for _, name := range rule.Resources {
			if group != rbacv1.APIGroupAll && !strings.HasPrefix(name, "*") {
				add(resource{group: group, resource: name})
			}
		}
	}
	return found
}

// namedBy reports whether a rule's resources have one of a name. "*" is all, also subresources, and "*/name" that
// subresource of all.
func namedBy(resources []string, name string) bool {
	_, sub, isSub := strings.Cut(name, "/")
	return slices.ContainsFunc(resources, func(r string) bool {
		return r == rbacv1.ResourceAll || r == name || (isSub && r == "*/"+sub)
	})
}

// Unused returns the rights that no use needed, except those that are excused; and the excuses for rights that were
// used after all, or that were not granted. Both are sorted.
func Unused(rights, uses []Right, excused map[string]string) (unused, needless []string) {
	open := map[string]bool{} // By the text of the right: whether it was used.
	for _, r := range rights {
		used := slices.ContainsFunc(uses, r.Covers)
		open[r.String()] = open[r.String()] || used
	}
	for text, used := range open {
		if _, excused := excused[text]; !used && !excused {
			unused = append(unused, text)
		}
	}
	for text := range excused {
		if used, granted := open[text]; used || !granted {
			needless = append(needless, text)
		}
	}
	slices.Sort(unused)
	slices.Sort(needless)
	return unused, needless
}

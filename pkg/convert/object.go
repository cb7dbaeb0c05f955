// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// kinds are those of Spectro Cloud's API, each with a new object of ours. It has no MaasClusterTemplate.
var kinds = map[string]func() any{
	"MaasCluster":         func() any { return &infrav1.MaasCluster{} },
	"MaasMachine":         func() any { return &infrav1.MaasMachine{} },
	"MaasMachineTemplate": func() any { return &infrav1.MaasMachineTemplate{} },
}

// versions are those that its releases serve or served.
var versions = []string{"v1alpha3", "v1alpha4", "v1beta1"}

// convertObject converts an object, or the items of a List, and reports whether it changed. line is the one before its
// document.
func convertObject(node *yaml.Node, line int, findings *[]Finding) (changed bool) {
	o := &object{line: line, findings: findings}
	m := mapping{o, node, ""}
	apiVersion, kind := o.identify(m)
	group, version, _ := strings.Cut(apiVersion, "/")
	ours := group == infrav1.GroupVersion.Group
	isList := ours && kinds[strings.TrimSuffix(kind, "List")] != nil && strings.HasSuffix(kind, "List")
	switch {
	case apiVersion == "v1" && kind == "List":
		return convertItems(m)
	case isList:
		m.problem("kind", "a list of one kind is not understood: kubectl get -o yaml writes a List of apiVersion v1")
	case ours && kinds[kind] != nil:
		o.convert(m, kind, version)
	default:
		o.checkOther(m, group, version, kind)
	}
	return o.changed
}

// convertItems converts the items of a List.
func convertItems(list mapping) (changed bool) {
	items := list.get("items")
	if items == nil {
		return false
	}
	for _, item := range items.Content {
		if item.Kind != yaml.MappingNode {
			list.problem("items", "an item is not a Kubernetes object")
			continue
		}
		if convertObject(item, list.line, list.findings) {
			changed = true
		}
	}
	return changed
}

// identify reads the fields that every object has.
func (o *object) identify(m mapping) (apiVersion, kind string) {
	value := func(m mapping, key string) string {
		n := m.get(key)
		if n != nil && n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n == nil || n.Kind != yaml.ScalarNode {
			return ""
		}
		return n.Value
	}
	apiVersion, kind = value(m, "apiVersion"), value(m, "kind")
	o.name = kind
	if metadata := m.get("metadata"); metadata != nil && metadata.Kind == yaml.MappingNode {
		in := mapping{o, metadata, "metadata"}
		name := value(in, "name")
		if namespace := value(in, "namespace"); namespace != "" {
			name = namespace + "/" + name
		}
		o.name = strings.TrimSpace(kind + " " + name)
	}
	if apiVersion == "" || kind == "" {
		m.problem("", "this is not a Kubernetes object: apiVersion or kind is missing")
	}
	return apiVersion, kind
}

// convert converts an object of one of the kinds.
func (o *object) convert(m mapping, kind, version string) {
	if !slices.Contains(versions, version) {
		m.problem("apiVersion", "Spectro Cloud's provider never served version %s, but %s", version,
			strings.Join(versions, ", "))
		return
	}
	if shared(m.node) {
		m.problem("", "it has YAML anchors, aliases or tags: write it without them")
		return
	}
	before := len(*o.findings)
	if version != infrav1.GroupVersion.Version {
		m.set("apiVersion", scalar(textTag, infrav1.GroupVersion.String()))
	}
	m.check([]string{"apiVersion", "kind", "metadata", "spec", "status"})
	o.convertMetadata(m, kind)
	spec, ok := m.child("spec")
	switch {
	case !ok:
		m.problem("spec", "it is missing")
	case kind == "MaasCluster":
		o.convertCluster(m, spec)
	case kind == "MaasMachine":
		o.convertMachine(spec, false)
	default:
		o.convertTemplate(spec)
	}
	failed := slices.ContainsFunc((*o.findings)[before:], func(f Finding) bool { return f.Severity == Problem })
	if !failed {
		o.verify(m, kind)
	}
}

// verify checks that the API server can read the result as our type.
func (o *object) verify(m mapping, kind string) {
	text, err := yaml.Marshal(m.node)
	if err == nil {
		text, err = sigsyaml.YAMLToJSONStrict(text) // Not UnmarshalStrict: it turns numbers into strings.
	}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(kinds[kind]())
	}
	if err != nil {
		m.problem("", "the result is not a valid %s: %v", kind, err)
	}
}

// shared reports whether a node uses anchors, aliases, merge keys or custom tags: changing one place could change
// another.
func shared(n *yaml.Node) bool {
	if n.Anchor != "" || n.Kind == yaml.AliasNode || n.Style&yaml.TaggedStyle != 0 || n.ShortTag() == "!!merge" {
		return true
	}
	return slices.ContainsFunc(n.Content, shared)
}

// written are the metadata that the API server and controllers write. References and finalizers belong to the original
// cluster.
var written = []string{
	"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation", "managedFields",
	"ownerReferences",
	"resourceVersion", "selfLink", "uid",
}

// recorded are annotations that kubectl and Spectro Cloud's controllers write.
var recorded = []string{"kubectl.kubernetes.io/last-applied-configuration", "maas.spectrocloud.com/vm-name",
	"maas.lxd.io/evacuation-completed"}

// convertMetadata leaves out what the API server and controllers wrote into a live object.
func (o *object) convertMetadata(m mapping, kind string) {
	var gone []string
	drop := func(in mapping, keys []string) {
		for _, key := range keys {
			if n := in.get(key); n != nil {
				if !isNull(n) {
					gone = append(gone, strings.TrimPrefix(in.path+"."+key, "."))
				}
				in.remove(key)
			}
		}
	}
	drop(m, []string{"status"})
	metadata, ok := m.child("metadata")
	if !ok {
		return
	}
	drop(metadata, written)
	metadata.check([]string{"name", "generateName", "namespace", "labels", "annotations"})
	if annotations, ok := metadata.child("annotations"); ok && len(annotations.node.Content) > 0 {
		if drop(annotations, recorded); len(annotations.node.Content) == 0 {
			metadata.remove("annotations")
		}
	}
	if len(gone) > 0 {
		m.note("metadata", "left out, as the API server and controllers write it: %s", strings.Join(gone, ", "))
	}
	if slices.Contains(gone, "metadata.deletionTimestamp") {
		m.problem("metadata", "this %s is being deleted: leave it out", kind)
	}
}

// checkOther checks an object of another provider for what has to be changed by hand. It stays as it is, but for fields
// without a value in one of Cluster API's own kinds.
func (o *object) checkOther(m mapping, group, version, kind string) {
	if isCore(group, kind) && strings.HasPrefix(version, "v1alpha") {
		m.report(Loss, "apiVersion", "it stays, and Cluster API 1.14 does not serve %s: write a new object, best as v1beta2",
			version)
	}
	if spec, ok := m.subject("spec"); ok && group == "cluster.x-k8s.io" && kind == "Cluster" {
		o.checkCluster(spec)
	}
	o.checkReferences(m.node, "")
	o.dropEmpty(m, group, version, kind)
}

// isCore distinguishes Cluster API's own kinds from those of other providers, whose v1alpha3 may be the newest version.
func isCore(group, kind string) bool {
	switch group {
	case "cluster.x-k8s.io":
		return true
	case "bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io":
		return strings.HasPrefix(kind, "Kubeadm")
	case "addons.cluster.x-k8s.io":
		return strings.HasPrefix(kind, "ClusterResourceSet")
	}
	return false
}

// subject is a child of an object that is not ours: whatever it is, it is no problem.
func (m mapping) subject(key string) (mapping, bool) {
	if n := m.get(key); n == nil || n.Kind != yaml.MappingNode {
		return mapping{}, false
	}
	return m.child(key)
}

// checkCluster reports the endpoint of a live Cluster: it is the name that Spectro Cloud's controller made, which the
// new cluster does not have.
func (o *object) checkCluster(spec mapping) {
	reference, _ := spec.subject("infrastructureRef")
	endpoint, ok := spec.subject("controlPlaneEndpoint")
	host, kind := endpoint.get("host"), reference.get("kind")
	if ok && kind != nil && kind.Value == "MaasCluster" && host != nil && host.Value != "" {
		endpoint.report(Loss, "host", "it stays, but the new cluster has an endpoint of its own: remove "+
			"controlPlaneEndpoint, unless you keep this name or address yourself")
	}
}

// checkReferences finds references to our kinds in versions that no longer exist. Aliases are not followed.
func (o *object) checkReferences(n *yaml.Node, path string) {
	if n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			o.checkReferences(item, fmt.Sprintf("%s[%d]", path, i))
		}
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	m := mapping{o, n, path}
	kind, apiVersion := m.get("kind"), m.get("apiVersion")
	if path != "" && kind != nil && apiVersion != nil && kinds[kind.Value] != nil {
		group, version, _ := strings.Cut(apiVersion.Value, "/")
		if group == infrav1.GroupVersion.Group && version != infrav1.GroupVersion.Version {
			m.report(Loss, "apiVersion", "it stays: write %s, or, where the object is of cluster.x-k8s.io/v1beta2, apiGroup: %s",
				infrav1.GroupVersion, group)
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		o.checkReferences(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."))
	}
}

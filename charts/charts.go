// SPDX-License-Identifier: Apache-2.0

// Package charts renders the part of the chart that the manager puts into host clusters: the LXD initializer.
package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// chartFiles are what the initializer's templates need of the chart.
//
//go:embed capmaas/Chart.yaml capmaas/values.yaml capmaas/values.schema.json capmaas/templates/_helpers.tpl capmaas/templates/lxd-initializer
var chartFiles embed.FS

const (
	chartDir     = "capmaas"
	templatesDir = "templates/lxd-initializer/"

	// InitializerName is the name of the initializer's DaemonSet, ServiceAccount, Role and RoleBinding in a host
	// cluster. What is in no namespace is named <InitializerName>.<namespace>.
	InitializerName = "lxd-initializer"

	// CredentialsHashAnnotation is on the initializer's pods if the credentials' hash is given.
	CredentialsHashAnnotation = "capmaas.io/credentials-hash"
)

// managedBy is the label app.kubernetes.io/managed-by of the objects in a host cluster. Those of a chart that a user
// installed have another value.
const managedBy = "capmaas-manager"

// helmLabel changes with each version of the chart, whether the object changes or not. Only Helm's users read it.
const helmLabel = "helm.sh/chart"

// installOrder are the initializer's templates: it may nothing before the policy limits what it may.
var installOrder = []string{"serviceaccount.yaml", "admissionpolicy.yaml", "rbac.yaml", "daemonset.yaml"}

// Values are the initializer's settings in a host cluster. What is empty is as in the chart's values.yaml, unless said
// otherwise.
type Values struct {
	// Namespace that the initializer runs in. Required.
	Namespace string
	// Image is the reference of the initializer's image. Default: the chart's repository, tagged with its appVersion.
	Image string
	// PullPolicy is Always, IfNotPresent or Never.
	PullPolicy string
	// ImagePullSecrets are names of Secrets in Namespace.
	ImagePullSecrets []string
	// StorageBackend is zfs, btrfs, lvm or dir.
	StorageBackend string
	// StorageSize is the size of the storage pool in GB, in digits.
	StorageSize string
	// NetworkBridge is the bridge on each node that VMs are attached to.
	NetworkBridge string
	// Zone is the zone that MAAS puts the VM hosts into. Empty, here: each into the zone of its machine.
	Zone string
	// ResourcePool is the pool that MAAS puts the VM hosts into.
	ResourcePool string
	// CredentialsHash is anything that changes with the credentials: pods are then made anew at once, and don't wait
	// until the node has written the files that changed. It is public.
	CredentialsHash string
}

// Initializer renders the LXD initializer for a host cluster, from the templates that the chart itself has, in the
// order in which the objects are to be created: Namespace, ServiceAccount, admission policy with its binding, roles
// with their bindings, DaemonSet. The same values give the same objects. The Namespace admits what the initializer's
// pods need (see NamespaceLabels); MAAS's credentials are not among the objects: the pods wait for the Secret
// maas-credentials (keys apiKey and, optionally, caBundle) and the ConfigMap capmaas-config (key maasEndpoint) in it.
//
// It fails when a value is refused by the chart's schema.
func Initializer(values Values) ([]*unstructured.Unstructured, error) {
	if values.Namespace == "" {
		return nil, fmt.Errorf("rendering the LXD initializer: no namespace is given")
	}
	parsed, err := parsedChart()
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: InitializerName, Namespace: values.Namespace, Revision: 1, IsInstall: true}
	top, err := chartutil.ToRenderValues(parsed, values.chart(), options, nil)
	if err != nil {
		return nil, fmt.Errorf("values of the LXD initializer: %w", err)
	}
	top["Release"].(map[string]any)["Service"] = managedBy
	rendered, err := engine.Engine{}.Render(parsed, top)
	if err != nil {
		return nil, fmt.Errorf("rendering the LXD initializer: %w", err)
	}
	objects := []*unstructured.Unstructured{namespace(values.Namespace)}
	for _, name := range installOrder {
		parsed, err := parse(rendered[path.Join(parsed.Name(), templatesDir, name)])
		if err != nil {
			return nil, fmt.Errorf("reading %s of the LXD initializer: %w", name, err)
		}
		objects = append(objects, parsed...)
	}
	return objects, nil
}

// parsedChart reads the chart once. Rendering does not change it.
var parsedChart = sync.OnceValues(func() (*chart.Chart, error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(chartFiles, chartDir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := chartFiles.ReadFile(name)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(name, chartDir+"/"), Data: content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	parsed, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	return parsed, nil
})

// chart are the values as the chart has them.
func (v Values) chart() map[string]any {
	initializer := map[string]any{"enabled": true, "zoneOfMachine": true}
	for name, value := range map[string]string{
		"zone": v.Zone, "resourcePool": v.ResourcePool,
		"storageBackend": v.StorageBackend, "storageSize": v.StorageSize, "networkBridge": v.NetworkBridge,
	} {
		if value != "" {
			initializer[name] = value
		}
	}
	image := map[string]any{}
	if v.Image != "" {
		image = Image(v.Image)
	}
	if v.PullPolicy != "" {
		image["pullPolicy"] = v.PullPolicy
	}
	initializer["image"] = image
	if v.CredentialsHash != "" {
		initializer["podAnnotations"] = map[string]any{CredentialsHashAnnotation: v.CredentialsHash}
	}
	pull := []any{}
	for _, name := range v.ImagePullSecrets {
		pull = append(pull, name)
	}
	return map[string]any{"lxdInitializer": initializer, "imagePullSecrets": pull, "fullnameOverride": InitializerName}
}

// Image splits an image's reference into what the chart's values say about an image: repository, tag and digest.
func Image(reference string) map[string]any {
	repository, digest, _ := strings.Cut(reference, "@")
	tag := ""
	// A colon before the last slash belongs to a registry's port. A digest takes precedence over a tag.
	if colon := strings.LastIndex(reference, ":"); digest == "" && colon > strings.LastIndex(reference, "/") {
		repository, tag = reference[:colon], reference[colon+1:]
	}
	return map[string]any{"repository": repository, "tag": tag, "digest": digest}
}

// NamespaceLabels are the labels of a namespace that the initializer's pods are admitted to: hostPath volumes, which
// LXD's directories are, are forbidden by the Pod Security profiles baseline and restricted.
func NamespaceLabels() map[string]string {
	const profile = "privileged"
	return map[string]string{
		"pod-security.kubernetes.io/enforce": profile,
		"pod-security.kubernetes.io/audit":   profile,
		"pod-security.kubernetes.io/warn":    profile,
	}
}

func namespace(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("Namespace")
	o.SetName(name)
	o.SetLabels(NamespaceLabels())
	return o
}

// parse reads the objects of one rendered template.
func parse(manifest string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split(manifest, "\n---\n") {
		content, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(content); err != nil {
			return nil, err
		}
		labels := o.GetLabels()
		delete(labels, helmLabel)
		o.SetLabels(labels)
		objects = append(objects, o)
	}
	return objects, nil
}

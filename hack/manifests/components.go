// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/capmaas/cluster-api-provider-maas/charts"
)

const (
	namespace     = "capmaas-system"
	providerLabel = "cluster.x-k8s.io/provider"
)

// helmLabels name Helm as the manager of an object. That is wrong if clusterctl or kubectl installs it.
var helmLabels = []string{"helm.sh/chart", "app.kubernetes.io/managed-by"}

// components renders the chart as clusterctl requires: one file with one Namespace, the provider's label on everything,
// and, unless r.Values have others, credentials as the variables MAAS_ENDPOINT, MAAS_API_KEY and MAAS_NAMESPACES.
func (r Release) components() ([]byte, error) {
	manifest, err := r.renderChart()
	if err != nil {
		return nil, err
	}
	reader := kio.ByteReader{Reader: strings.NewReader(manifest), OmitReaderAnnotations: true}
	objects, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the rendered chart: %w", err)
	}
	ns, err := kyaml.Parse("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + namespace)
	if err != nil {
		return nil, err
	}
	objects = append([]*kyaml.RNode{ns}, objects...)
	for _, object := range objects {
		if err := label(object); err != nil {
			return nil, fmt.Errorf("labelling %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if err := nameImages(object); err != nil {
			return nil, fmt.Errorf("naming the images of %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	var out bytes.Buffer
	if err := (kio.ByteWriter{Writer: &out}).Write(objects); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func label(object *kyaml.RNode) error {
	// Helm's comment with the template's name stands above the first key.
	object.YNode().Content[0].HeadComment = ""
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for _, name := range helmLabels {
		delete(labels, name)
	}
	labels[providerLabel] = providerDir
	return object.SetLabels(labels)
}

// nameImages gives the containers of a Deployment the full names of their images: clusterctl accepts no others.
func nameImages(object *kyaml.RNode) error {
	containers, err := object.Pipe(kyaml.Lookup("spec", "template", "spec", "containers"))
	if err != nil || containers == nil {
		return err
	}
	return containers.VisitElements(func(container *kyaml.RNode) error {
		image, err := container.GetString("image")
		if err != nil {
			return err
		}
		return container.PipeE(kyaml.SetField("image", kyaml.NewStringRNode(fullName(image))))
	})
}

// fullName returns the full form of a short image name, as container runtimes expand it.
func fullName(image string) string {
	registry, _, found := strings.Cut(image, "/")
	switch {
	case !found:
		return "docker.io/library/" + image
	case registry == "localhost" || strings.ContainsAny(registry, ".:"):
		return image
	}
	return "docker.io/" + image
}

// renderChart renders the chart without a cluster, in the order of installation.
func (r Release) renderChart() (string, error) {
	capmaas, err := loader.LoadDir(filepath.Join(r.Source, "charts", "capmaas"))
	if err != nil {
		return "", fmt.Errorf("loading the chart: %w", err)
	}
	capmaas.Metadata.AppVersion = r.Version
	install := action.NewInstall(&action.Configuration{})
	install.ClientOnly = true
	install.DryRun = true
	install.ReleaseName = "capmaas"
	install.Namespace = namespace
	if install.KubeVersion, err = chartutil.ParseKubeVersion(oldestKubernetes); err != nil {
		return "", err
	}
	release, err := install.Run(capmaas, r.values())
	if err != nil {
		return "", fmt.Errorf("rendering the chart: %w", err)
	}
	return release.Manifest, nil
}

// values are the chart's: images that were named, then r.Values, then what clusterctl needs.
func (r Release) values() map[string]any {
	values := map[string]any{}
	if r.Image != "" {
		values["image"] = charts.Image(r.Image)
	}
	if r.InitializerImage != "" {
		// The image for host clusters.
		values["lxdInitializer"] = map[string]any{"image": charts.Image(r.InitializerImage)}
	}
	credentials := map[string]any{"endpoint": "${MAAS_ENDPOINT}", "apiKey": "${MAAS_API_KEY}",
		"namespaces": []any{"${MAAS_NAMESPACES:=\"\"}"}}
	given, _ := r.Values["maas"].(map[string]any)
	if given["namespaces"] != nil {
		delete(credentials, "namespaces")
	}
	for key, object := range map[string]string{"endpoint": "existingConfigMap", "apiKey": "existingSecret"} {
		if given[object] != nil && given[object] != "" {
			delete(credentials, key)
		}
	}
	// The annotation that crds.keep sets is read by Helm alone.
	needed := map[string]any{"maas": credentials, "crds": map[string]any{"keep": false}}
	for _, table := range []map[string]any{r.Values, needed} {
		values = chartutil.CoalesceTables(values, table)
	}
	return values
}

// oldestKubernetes is the oldest version that the chart supports; newer versions work, too.
const oldestKubernetes = "v1.33.0"

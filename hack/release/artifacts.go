// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/registry"
	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

const chartDir = "charts/capmaas"

// imagePrograms have an image each.
var imagePrograms = []string{"manager", "lxd-initializer"}

// imageValues are the paths of the images in the chart's values.
var imageValues = map[string][]string{"manager": {"image"}, "lxd-initializer": {"lxdInitializer", "image"}}

// pinned is what a registry has, by its digest, which nobody can change.
type pinned struct{ Repository, Digest string }

func (p pinned) String() string { return p.Repository + "@" + p.Digest }

// artifacts are what a release has in the registry.
type artifacts struct {
	images map[string]pinned
	chart  pinned
}

func (a artifacts) all() []pinned {
	var all []pinned
	for _, program := range imagePrograms {
		all = append(all, a.images[program])
	}
	return append(all, a.chart)
}

// newRegistryClient uses the credentials of `docker login` or `helm registry login`. A registry on this computer itself
// speaks HTTP, as docker and cosign take it, too.
func newRegistryClient(address string) (*registry.Client, error) {
	host, _, _ := strings.Cut(address, "/")
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	var options []registry.ClientOption
	if ip := net.ParseIP(host); host == "localhost" || ip.IsLoopback() {
		options = append(options, registry.ClientOptPlainHTTP())
	}
	return registry.NewClient(options...)
}

// pin finds the digests of the images.
func (r *release) pin(client *registry.Client) (map[string]pinned, error) {
	images := map[string]pinned{}
	for program, reference := range r.images {
		found, err := client.Resolve(reference)
		if err != nil {
			return nil, fmt.Errorf("finding the image %s: %w", reference, err)
		}
		images[program] = pinned{repositoryOf(reference), found.Digest.String()}
	}
	return images, nil
}

// repositoryOf is a reference without its tag. The colon of a port is before a slash.
func repositoryOf(reference string) string {
	if i := strings.LastIndex(reference, ":"); i > strings.LastIndex(reference, "/") {
		return reference[:i]
	}
	return reference
}

// publishChart writes the chart, with the images by their digests, and pushes it.
func (r *release) publishChart(client *registry.Client, images map[string]pinned) (pinned, error) {
	loaded, err := loader.LoadDir(chartDir)
	if err != nil {
		return pinned{}, err
	}
	files, err := r.chartFiles(loaded, images)
	if err != nil {
		return pinned{}, err
	}
	archive := filepath.Join(r.assets, fmt.Sprintf("%s-%s.tgz", loaded.Name(), r.chartVersion()))
	if err := writeTar(archive, files, r.made); err != nil {
		return pinned{}, err
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		return pinned{}, err
	}
	// Helm reads what it is to push, and refuses what is no chart.
	repository := path.Join(r.registry, "charts", loaded.Name())
	result, err := client.Push(content, repository+":"+r.chartVersion(), registry.PushOptCreationTime(r.made.UTC().Format(timeFormat)))
	if err != nil {
		return pinned{}, err
	}
	return pinned{repository, result.Manifest.Digest}, nil
}

// timeFormat is RFC 3339's.
const timeFormat = "2006-01-02T15:04:05Z07:00"

// chartFiles are the chart's files, with the version and the images of the release in them.
func (r *release) chartFiles(loaded *chart.Chart, images map[string]pinned) ([]packed, error) {
	loaded.Metadata.Version, loaded.Metadata.AppVersion = r.chartVersion(), r.version
	metadata, err := yaml.Marshal(loaded.Metadata)
	if err != nil {
		return nil, err
	}
	var files []packed
	for _, f := range loaded.Raw {
		content := f.Data
		switch f.Name {
		case chartutil.ChartfileName:
			content = metadata
		case chartutil.ValuesfileName:
			if content, err = pinValues(content, images); err != nil {
				return nil, err
			}
		}
		files = append(files, packed{name: path.Join(loaded.Name(), f.Name), content: content, mode: 0o644})
	}
	return files, nil
}

// pinValues puts images into the chart's values, by their digests. Comments stay.
func pinValues(values []byte, images map[string]pinned) ([]byte, error) {
	nodes, err := (&kio.ByteReader{Reader: bytes.NewReader(values), OmitReaderAnnotations: true, DisableUnwrapping: true}).Read()
	if err != nil || len(nodes) != 1 {
		return nil, fmt.Errorf("values.yaml has %d documents: %w", len(nodes), err)
	}
	for program, image := range images {
		for field, value := range map[string]string{"repository": image.Repository, "digest": image.Digest} {
			at := append([]string{}, imageValues[program]...)
			if err := nodes[0].PipeE(kyaml.Lookup(append(at, field)...), kyaml.Set(kyaml.NewStringRNode(value))); err != nil {
				return nil, fmt.Errorf("setting %s of %s: %w", field, program, err)
			}
		}
	}
	text, err := nodes[0].String()
	return []byte(text), err
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const (
	homepage = "https://github.com/capmaas/cluster-api-provider-maas"
	// krewManifest is named as krew wants it, after the plugin: `kubectl krew install --manifest=capmaas.yaml`.
	krewManifest = "capmaas.yaml"
)

// plugin is krew's manifest of a plugin for kubectl, as far as this one needs it.
type plugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       pluginSpec        `json:"spec"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector map[string]map[string]string `json:"selector"`
	URI      string                       `json:"uri"`
	SHA256   string                       `json:"sha256"`
	Bin      string                       `json:"bin"`
}

// writeKrewManifest writes the manifest with which krew installs capmaasctl as `kubectl capmaas`.
func (r *release) writeKrewManifest(archives map[platform]string) error {
	p := plugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": "capmaas"},
		Spec: pluginSpec{
			Version: r.version, Homepage: homepage,
			ShortDescription: "Operate clusters on MAAS",
			Description: "What operators of Cluster API's provider CAPMAAS do: check MAAS and LXD before a cluster is made, say where machines\n" +
				"would go, empty hosts, lift quarantines, upload images, and find what nobody owns any more.\n",
		},
	}
	for _, on := range r.platforms {
		sum, err := sha256Of(archives[on])
		if err != nil {
			return err
		}
		p.Spec.Platforms = append(p.Spec.Platforms, pluginPlatform{
			Selector: map[string]map[string]string{"matchLabels": {"os": on.os, "arch": on.arch}},
			URI:      homepage + "/releases/download/" + r.version + "/" + filepath.Base(archives[on]),
			SHA256:   sum, Bin: on.executable(),
		})
	}
	content, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.assets, krewManifest), content, 0o644)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/version"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"
)

// providerDir is the provider's name in clusterctl, and the directory of its releases.
const providerDir = "infrastructure-maas"

// Release is one release in the form that clusterctl reads.
type Release struct {
	// Source is the directory of this project's sources.
	Source string
	// Version is a semantic version with a leading v.
	Version string
	// Image is the reference of the manager's image. Default: that of Values, then the chart's repository, tagged with
	// the version.
	Image string
	// InitializerImage is the reference of the LXD initializer's image. Default: for what the manager puts into host
	// clusters, as for Image; in lxd-initializer-daemonset.yaml, the placeholders ${REGISTRY} and ${TAG}.
	InitializerImage string
	// Values are the chart's values for infrastructure-components.yaml, over its defaults and the variables of the
	// credentials. The images above take precedence.
	Values map[string]any
}

// Write writes the release into the repository at out and returns the release's directory.
// It also writes out/clusterctl.yaml, by which clusterctl finds the repository.
func (r Release) Write(out string) (string, error) {
	if err := r.checkVersion(); err != nil {
		return "", err
	}
	components, err := r.components()
	if err != nil {
		return "", err
	}
	files, err := r.sources()
	if err != nil {
		return "", err
	}
	files["infrastructure-components.yaml"] = components
	if files["lxd-initializer-daemonset.yaml"], err = r.initializer(); err != nil {
		return "", err
	}

	// clusterctl accepts no relative path.
	repository, err := filepath.Abs(out)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(repository, providerDir, r.Version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return "", err
		}
	}
	return dir, r.writeConfig(repository)
}

// checkVersion refuses a version that clusterctl would refuse, or that is missing in metadata.yaml.
func (r Release) checkVersion() error {
	v, err := version.ParseSemantic(r.Version)
	if err != nil || r.Version[0] != 'v' {
		return fmt.Errorf("version %q is not a semantic version with a leading v, for example v0.1.0", r.Version)
	}
	content, err := os.ReadFile(filepath.Join(r.Source, "metadata.yaml"))
	if err != nil {
		return err
	}
	metadata := clusterctlv1.Metadata{}
	if err := yaml.UnmarshalStrict(content, &metadata); err != nil {
		return fmt.Errorf("reading metadata.yaml: %w", err)
	}
	if metadata.GetReleaseSeriesForVersion(v) == nil {
		return fmt.Errorf("metadata.yaml has no release series %d.%d: add it, with its Cluster API contract", v.Major(), v.Minor())
	}
	return nil
}

// sources reads the files that a release contains unchanged.
func (r Release) sources() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, pattern := range []string{"metadata.yaml", "templates/cluster-template*.yaml", "clusterclass/clusterclass-*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(r.Source, pattern))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("no file matches %s in %s", pattern, r.Source)
		}
		for _, path := range paths {
			if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

func (r Release) writeConfig(repository string) error {
	type provider struct {
		Name string `json:"name"`
		Type string `json:"type"`
		URL  string `json:"url"`
	}
	content, err := yaml.Marshal(map[string]any{"providers": []provider{{
		Name: "maas",
		Type: string(clusterctlv1.InfrastructureProviderType),
		URL:  filepath.Join(repository, providerDir, r.Version, "infrastructure-components.yaml"),
	}}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(repository, "clusterctl.yaml"), content, 0o644)
}

// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// RegionWithoutVMHosts describes the default region with its bare metal alone, for Options.Region: what VM hosts there
// are then were registered by host clusters.
func RegionWithoutVMHosts() (io.Reader, error) {
	region := map[string]any{}
	if err := yaml.Unmarshal(defaultRegion, &region); err != nil {
		return nil, fmt.Errorf("reading the default region: %w", err)
	}
	delete(region, "vm_hosts")
	// MAAS makes this tag with the first VM host, and keeps it.
	tags, _ := region["tags"].([]any)
	region["tags"] = append(tags, map[string]any{"name": "pod-console-logging"})
	bare, err := yaml.Marshal(region)
	if err != nil {
		return nil, fmt.Errorf("writing the region: %w", err)
	}
	return bytes.NewReader(bare), nil
}

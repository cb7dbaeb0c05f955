// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/charts"
)

// placeholderImage is for those who replace ${REGISTRY} and ${TAG} themselves.
const placeholderImage = "${REGISTRY}/capmaas-lxd-initializer:${TAG}"

const versionLabel = "app.kubernetes.io/version"

const initializerHead = `# The LXD initializer, for kubectl apply in the cluster whose nodes are to become LXD VM hosts of MAAS.
# Its pods wait until their namespace holds MAAS's address and an API key:
#   kubectl create configmap capmaas-config --namespace capmaas-system --from-literal=maasEndpoint=http://maas.example.com:5240/MAAS
#   kubectl create secret generic maas-credentials --namespace capmaas-system --from-file=apiKey=PATH
`

const placeholderHead = `# Put registry and tag of your image into the DaemonSet first, for example with envsubst '$REGISTRY $TAG'.
`

// initializer renders the LXD initializer for kubectl apply, with the chart's default settings.
func (r Release) initializer() ([]byte, error) {
	image, head := r.InitializerImage, initializerHead
	if image == "" {
		image, head = placeholderImage, initializerHead+placeholderHead
	}
	objects, err := charts.Initializer(charts.Values{Namespace: namespace, Image: image, Zone: "default", ResourcePool: "default"})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(head)
	for _, object := range objects {
		labels := object.GetLabels()
		for _, name := range helmLabels {
			delete(labels, name)
		}
		if _, set := labels[versionLabel]; set {
			labels[versionLabel] = r.Version
		}
		object.SetLabels(labels)
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(content)
	}
	return out.Bytes(), nil
}

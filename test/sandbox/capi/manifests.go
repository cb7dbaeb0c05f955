// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const clusterAPI = "sigs.k8s.io/cluster-api"

// moduleDir asks the go command for the directory of a module, downloaded if need be. The command runs in the directory
// of the module that pins it: for Cluster API the main one (where tests run), so the version is the one of this build.
func moduleDir(ctx context.Context, dir string, env []string, module string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir, command.Env = dir, env
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("finding the module %s: %w: %s", module, err, exit.Stderr)
		}
		return "", fmt.Errorf("finding the module %s: %w", module, err)
	}
	found := strings.TrimSpace(string(out))
	if found == "" {
		return "", fmt.Errorf("finding the module %s: it is not in the module cache: %w", module, os.ErrNotExist)
	}
	return found, nil
}

// manifests are what one provider's release installs in the management cluster, apart from its Deployment.
type manifests struct {
	crds     []*apiextensionsv1.CustomResourceDefinition
	webhooks []client.Object
}

// render builds a provider's config/default, with its webhooks served at host and trusted by the certificate ca.
func render(moduleDir, provider, host string, ca []byte) (*manifests, error) {
	dir := filepath.Join(moduleDir, provider, "config", "default")
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("rendering the manifests of %s: %w", provider, err)
	}
	m := &manifests{}
	for _, resource := range resources.Resources() {
		document, err := resource.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("rendering the manifests of %s: %w", provider, err)
		}
		if err := m.add(resource.GetKind(), document, host, ca); err != nil {
			return nil, fmt.Errorf("reading a %s of %s: %w", resource.GetKind(), provider, err)
		}
	}
	return m, nil
}

func (m *manifests) add(kind string, document []byte, host string, ca []byte) error {
	switch kind {
	case "CustomResourceDefinition":
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(document, crd); err != nil {
			return err
		}
		crd.Annotations = nil // cert-manager's
		if crd.Labels == nil {
			crd.Labels = map[string]string{}
		}
		crd.Labels[clusterctlv1.ClusterctlLabel] = "" // As `clusterctl init` does; `clusterctl move` knows no other kinds.
		if crd.Spec.Conversion != nil && crd.Spec.Conversion.Webhook != nil {
			crd.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: ptr.To(host + "/convert"), CABundle: ca}
		}
		m.crds = append(m.crds, crd)
	case "MutatingWebhookConfiguration":
		configuration := &admissionv1.MutatingWebhookConfiguration{}
		if err := yaml.Unmarshal(document, configuration); err != nil {
			return err
		}
		configuration.Annotations = nil
		for i := range configuration.Webhooks {
			redirect(&configuration.Webhooks[i].ClientConfig, host, ca)
		}
		m.webhooks = append(m.webhooks, configuration)
	case "ValidatingWebhookConfiguration":
		configuration := &admissionv1.ValidatingWebhookConfiguration{}
		if err := yaml.Unmarshal(document, configuration); err != nil {
			return err
		}
		configuration.Annotations = nil
		for i := range configuration.Webhooks {
			redirect(&configuration.Webhooks[i].ClientConfig, host, ca)
		}
		m.webhooks = append(m.webhooks, configuration)
	}
	return nil
}

// dropDeprecated has the API server serve no deprecated versions: it would convert all that is written into each of them.
func (m *manifests) dropDeprecated() {
	for _, crd := range m.crds {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = !crd.Spec.Versions[i].Deprecated
		}
	}
}

// redirect replaces the Service, which nothing serves here, by the loopback address.
func redirect(config *admissionv1.WebhookClientConfig, host string, ca []byte) {
	*config = admissionv1.WebhookClientConfig{URL: ptr.To(host + ptr.Deref(config.Service.Path, "/")), CABundle: ca}
}

func createAll(ctx context.Context, c client.Client, objects []client.Object) error {
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	return nil
}

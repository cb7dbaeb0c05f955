// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	releaseName      = "capmaas"
	releaseNamespace = "capmaas-system"
)

var (
	chartDir = filepath.Join(sources, "charts", "capmaas")
	// oldestKubernetes is the oldest version in the chart's kubeVersion.
	oldestKubernetes = chartutil.KubeVersion{Version: "v1.33.0", Major: "1", Minor: "33"}
)

// values are a user's values. Paths of keys are written out, as in a values file.
type values = map[string]any

func loadChart() (*chart.Chart, error) { return loader.LoadDir(chartDir) }

// render renders the chart as `helm template` does.
func render(releaseNamespace string, v values) (*release.Release, error) {
	capmaas, err := loadChart()
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(&action.Configuration{})
	install.ClientOnly, install.DryRun = true, true
	install.ReleaseName, install.Namespace = releaseName, releaseNamespace
	install.KubeVersion = &oldestKubernetes
	return install.Run(capmaas, v)
}

// mustRender returns the objects that the chart makes.
func mustRender(t *testing.T, v values) []*unstructured.Unstructured {
	t.Helper()
	rendered, err := render(releaseNamespace, v)
	if err != nil {
		t.Fatal(err)
	}
	for _, hook := range rendered.Hooks {
		if !slices.Equal(hook.Events, []release.HookEvent{release.HookTest}) {
			t.Errorf("%s is a hook at %v; Argo CD and others treat hooks differently, there must be none but for helm test", hook.Path, hook.Events)
		}
	}
	return mustParse(t, []byte(rendered.Manifest))
}

// helmConfiguration is that of the helm command with the management cluster's kubeconfig.
func helmConfiguration(namespace string) (*action.Configuration, error) {
	settings := cli.New()
	settings.KubeConfig = management.kubeconfig
	settings.SetNamespace(namespace)
	configuration := &action.Configuration{}
	err := configuration.Init(settings.RESTClientGetter(), namespace, "secret", func(string, ...any) {})
	return configuration, err
}

func installChart(ctx context.Context, name, namespace string, v values) error {
	configuration, err := helmConfiguration(namespace)
	if err != nil {
		return err
	}
	capmaas, err := loadChart()
	if err != nil {
		return err
	}
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace = name, namespace
	_, err = install.RunWithContext(ctx, capmaas, v)
	return err
}

func uninstallChart(name, namespace string) error {
	configuration, err := helmConfiguration(namespace)
	if err != nil {
		return err
	}
	_, err = action.NewUninstall(configuration).Run(name)
	return err
}

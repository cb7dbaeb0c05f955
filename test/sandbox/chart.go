// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const (
	// Namespace that the chart is installed in.
	Namespace = "capmaas-system"
	// Release is the name of the chart's release.
	Release = "capmaas"
	// ManagerContainer is the name of the manager's container, for Kubelet.Kill.
	ManagerContainer = "manager"

	chartTimeout = eventually.Limit
)

// UpgradeChart changes values of the release: they are merged into those of the sandbox.
func (s *Sandbox) UpgradeChart(ctx context.Context, values map[string]any) error {
	return s.Manager.Upgrade(ctx, values)
}

func (m *Manager) install(ctx context.Context) error {
	configuration, loaded, err := m.helm()
	if err != nil {
		return err
	}
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace = m.release, m.Namespace
	install.Wait, install.Timeout = true, chartTimeout
	if _, err := install.RunWithContext(ctx, loaded, m.chartValues(nil)); err != nil {
		return fmt.Errorf("installing the chart in %s: %w", m.Namespace, err)
	}
	return nil
}

// Upgrade changes values of the release: they are merged into those that it was installed with.
func (m *Manager) Upgrade(ctx context.Context, values map[string]any) error {
	configuration, loaded, err := m.helm()
	if err != nil {
		return err
	}
	upgrade := action.NewUpgrade(configuration)
	upgrade.Namespace = m.Namespace
	upgrade.Wait, upgrade.Timeout = true, chartTimeout
	if _, err := upgrade.RunWithContext(ctx, m.release, loaded, m.chartValues(values)); err != nil {
		return fmt.Errorf("upgrading the chart in %s: %w", m.Namespace, err)
	}
	return nil
}

// Test is helm test: it runs the chart's tests in the cluster, and returns an error if one fails.
func (m *Manager) Test() error {
	configuration, _, err := m.helm()
	if err != nil {
		return err
	}
	test := action.NewReleaseTesting(configuration)
	test.Namespace, test.Timeout = m.Namespace, chartTimeout
	if _, err := test.Run(m.release); err != nil {
		return fmt.Errorf("testing the release in %s: %w", m.Namespace, err)
	}
	return nil
}

// Uninstall removes the release, and with it the manager.
func (m *Manager) Uninstall() error {
	configuration, _, err := m.helm()
	if err != nil {
		return err
	}
	uninstall := action.NewUninstall(configuration)
	uninstall.Wait, uninstall.Timeout = true, chartTimeout
	if _, err := uninstall.Run(m.release); err != nil {
		return fmt.Errorf("uninstalling the chart in %s: %w", m.Namespace, err)
	}
	return nil
}

func (m *Manager) helm() (*action.Configuration, *chart.Chart, error) {
	s := m.box
	loaded, err := loader.Load(filepath.Join(s.root, "charts", "capmaas"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the chart: %w", err)
	}
	getter := genericclioptions.NewConfigFlags(false)
	getter.KubeConfig, getter.Namespace = ptr.To(s.KubeconfigPath), ptr.To(m.Namespace)
	getter.CacheDir = ptr.To(filepath.Join(s.dir, "discovery")) // not the user's
	log := s.logger.WithName("helm")
	configuration := &action.Configuration{}
	debug := func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) }
	if err := configuration.Init(getter, m.Namespace, "secret", debug); err != nil {
		return nil, nil, fmt.Errorf("setting up Helm: %w", err)
	}
	return configuration, loaded, nil
}

// chartValues are the sandbox's, with those of the release in their place, and those given in the place of both.
func (m *Manager) chartValues(values map[string]any) map[string]any {
	return overlay(values, overlay(m.values, m.box.chartValues()))
}

// overlay returns the values of both; those of above win. It changes neither: managers share their values.
func overlay(above, below map[string]any) map[string]any {
	merged := maps.Clone(below)
	for name, value := range above {
		over, isTable := value.(map[string]any)
		under, wasTable := merged[name].(map[string]any)
		if isTable && wasTable {
			merged[name] = overlay(over, under)
		} else {
			merged[name] = value
		}
	}
	return merged
}

// chartValues returns values that a user would set, and those that shorten waits.
func (s *Sandbox) chartValues() map[string]any {
	values := map[string]any{
		"maas":       map[string]any{"endpoint": s.MAASURL, "apiKey": s.MAASAPIKey, "namespaces": []any{"*", "default"}},
		"listenHost": "127.0.0.1",
		"manager": map[string]any{
			"pollActive": s.options.PollActive.String(),
			"pollIdle":   s.options.PollIdle.String(),
			"env":        []any{map[string]any{"name": "HTTPS_PROXY", "value": s.network.ProxyURL().String()}},
			"extraArgs": []any{
				"--leader-elect-lease-duration=" + s.options.Lease.String(),
				"--leader-elect-renew-deadline=" + (s.options.Lease * 3 / 4).String(),
				"--leader-elect-retry-period=500ms",
				// What is slow in a real MAAS is faster here, and so are machines.
				"--workload-connect-retry=1s",
				"--settle-time=" + s.scaled(settleTime).String(), "--power-settle-time=0",
				"--vm-host-unreachable-timeout=15s",
			},
		},
	}
	return overlay(s.options.Values, values)
}

// settleTime is the manager's default.
const settleTime = 4 * time.Minute

// scaled is a duration of real time in the region's time, with some for the computer that runs all this.
func (s *Sandbox) scaled(d time.Duration) time.Duration {
	return (time.Duration(float64(d)/s.options.TimeScale) + 2*time.Second).Round(time.Millisecond)
}

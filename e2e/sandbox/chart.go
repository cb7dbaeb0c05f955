// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"
)

const (
	// Namespace that the chart is installed in.
	Namespace = "capmaas-system"
	// Release is the name of the chart's release.
	Release = "capmaas"
	// ManagerContainer is the name of the manager's container, for Kubelet.Kill.
	ManagerContainer = "manager"

	chartTimeout = 90 * time.Second
)

// InstallChart installs the chart, and returns when its Deployment is available.
func (s *Sandbox) InstallChart(ctx context.Context) error {
	configuration, loaded, err := s.helm()
	if err != nil {
		return err
	}
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace = Release, Namespace
	install.Wait, install.Timeout = true, chartTimeout
	if _, err := install.RunWithContext(ctx, loaded, s.chartValues()); err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	return nil
}

// UpgradeChart changes values of the release: they are merged into those of the sandbox.
func (s *Sandbox) UpgradeChart(ctx context.Context, values map[string]any) error {
	configuration, loaded, err := s.helm()
	if err != nil {
		return err
	}
	upgrade := action.NewUpgrade(configuration)
	upgrade.Namespace = Namespace
	upgrade.Wait, upgrade.Timeout = true, chartTimeout
	if _, err := upgrade.RunWithContext(ctx, Release, loaded, chartutil.CoalesceTables(values, s.chartValues())); err != nil {
		return fmt.Errorf("upgrading the chart: %w", err)
	}
	return nil
}

// UninstallChart removes the release.
func (s *Sandbox) UninstallChart() error {
	configuration, _, err := s.helm()
	if err != nil {
		return err
	}
	uninstall := action.NewUninstall(configuration)
	uninstall.Wait, uninstall.Timeout = true, chartTimeout
	if _, err := uninstall.Run(Release); err != nil {
		return fmt.Errorf("uninstalling the chart: %w", err)
	}
	return nil
}

func (s *Sandbox) helm() (*action.Configuration, *chart.Chart, error) {
	loaded, err := loader.Load(filepath.Join(s.root, "charts", "capmaas"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the chart: %w", err)
	}
	getter := genericclioptions.NewConfigFlags(false)
	getter.KubeConfig, getter.Namespace = ptr.To(s.KubeconfigPath), ptr.To(Namespace)
	getter.CacheDir = ptr.To(filepath.Join(s.dir, "discovery")) // not the user's
	log := s.logger.WithName("helm")
	configuration := &action.Configuration{}
	debug := func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) }
	if err := configuration.Init(getter, Namespace, "secret", debug); err != nil {
		return nil, nil, fmt.Errorf("setting up Helm: %w", err)
	}
	return configuration, loaded, nil
}

// chartValues are what a user would set, and what makes waiting short.
func (s *Sandbox) chartValues() map[string]any {
	values := map[string]any{
		"maas":       map[string]any{"endpoint": s.MAASURL, "apiKey": s.MAASAPIKey},
		"listenHost": "127.0.0.1",
		"manager": map[string]any{
			"pollActive": s.options.PollActive.String(),
			"pollIdle":   s.options.PollIdle.String(),
			"env":        []any{map[string]any{"name": "HTTPS_PROXY", "value": s.network.ProxyURL().String()}},
			"extraArgs": []any{
				// A manager that was killed does not hold up its successor for long.
				"--leader-elect-lease-duration=4s",
				"--leader-elect-renew-deadline=3s",
				"--leader-elect-retry-period=500ms",
				// What is slow in a real MAAS is faster here.
				"--settle-time=" + s.scaled(settleTime).String(),
			},
		},
	}
	return chartutil.CoalesceTables(chartutil.CoalesceTables(map[string]any{}, s.options.Values), values)
}

// settleTime is the manager's default.
const settleTime = 150 * time.Second

// scaled is a duration of real time in the region's time, with some for the computer that runs all this.
func (s *Sandbox) scaled(d time.Duration) time.Duration {
	return (time.Duration(float64(d)/s.options.TimeScale) + 2*time.Second).Round(time.Millisecond)
}

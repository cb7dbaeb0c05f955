// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
)

// helmInMemory is a Helm whose releases are in memory, and whose objects go nowhere.
func helmInMemory() *action.Configuration {
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = oldestKubernetes
	return &action.Configuration{
		Releases: storage.Init(driver.NewMemory()), KubeClient: &kubefake.PrintingKubeClient{Out: io.Discard},
		Capabilities: capabilities, Log: func(string, ...any) {},
	}
}

// olderChart is the chart before it had the value autoscaler.
func olderChart(t *testing.T) *chart.Chart {
	t.Helper()
	older := thisChart(t)
	delete(older.Values, "autoscaler")
	older.Schema = nil
	older.Templates = nil
	return older
}

// upgraded installs an older chart with a tag, and upgrades to this one with the flags that set says.
func upgraded(t *testing.T, set func(*action.Upgrade), v values) (before, after *release.Release, err error) {
	t.Helper()
	configuration := helmInMemory()
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace = releaseName, releaseNamespace
	if _, err := install.RunWithContext(t.Context(), olderChart(t), values{"image": values{"tag": "v9"}, "manager": values{"extraArgs": []any{"--x"}}}); err != nil {
		t.Fatal(err)
	}
	upgrade := action.NewUpgrade(configuration)
	upgrade.Namespace = releaseNamespace
	set(upgrade)
	if after, err = upgrade.RunWithContext(t.Context(), releaseName, thisChart(t), v); err != nil {
		return nil, nil, err
	}
	before, err = configuration.Releases.Get(releaseName, 1)
	return before, after, err
}

// With the flag of the documents, an upgrade keeps the values of the release, takes the chart's new ones, and can take
// one back by its empty value. A rollback finds what it had. With --reuse-values it has no new values.
func TestAnUpgradeOfOneValue(t *testing.T) {
	t.Parallel()
	resetThenReuse := func(u *action.Upgrade) { u.ResetThenReuseValues = true }
	before, after, err := upgraded(t, resetThenReuse, values{"evacuation": values{"enabled": true}, "image": values{"tag": ""}, "manager": values{"extraArgs": []any{}}})
	if err != nil {
		t.Fatal(err)
	}
	effective, err := chartutil.CoalesceValues(after.Chart, after.Config)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{"autoscaler.enabled": false, "evacuation.enabled": true, "image.tag": ""} {
		if got, err := effective.PathValue(path); err != nil || got != want {
			t.Errorf("%s is %v (%v), want %v", path, got, err, want)
		}
	}
	if args := effective["manager"].(map[string]any)["extraArgs"]; !cmp.Equal(args, []any{}) {
		t.Errorf("manager.extraArgs is %v: the empty list did not take it back", args)
	}
	if tag := before.Config["image"].(map[string]any)["tag"]; tag != "v9" {
		t.Errorf("the revision before has the tag %v now", tag)
	}
	if _, _, err := upgraded(t, func(u *action.Upgrade) { u.ReuseValues = true }, values{"evacuation": values{"enabled": true}}); err == nil {
		t.Error("--reuse-values takes new values: the documents may say so")
	}
}

// No command in the documents leaves out the defaults of a newer chart, and none takes a value back by null.
func TestNoCommandLosesDefaults(t *testing.T) {
	t.Parallel()
	wrong := regexp.MustCompile(`(?m)^\s*(helm upgrade[^\n]*|--set[^\n]*)(\s--reuse-values|=null)`)
	pages, err := filepath.Glob(filepath.Join(sources, "docs", "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages (%v)", len(pages), err)
	}
	upgrades := 0
	for _, page := range append(pages, filepath.Join(chartDir, "README.md"), filepath.Join(chartDir, "templates", "NOTES.txt")) {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		upgrades += len(regexp.MustCompile("helm upgrade").FindAll(content, -1))
		if found := wrong.Find(content); found != nil {
			t.Errorf("%s: %s", filepath.Base(page), found)
		}
	}
	if upgrades < 3 {
		t.Errorf("the documents upgrade the chart %d times", upgrades)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

var made = time.Unix(1700000000, 0)

func TestReferences(t *testing.T) {
	for reference, want := range map[string]string{
		"ghcr.io/capmaas/capmaas-manager:v0.1.0": "ghcr.io/capmaas/capmaas-manager",
		"127.0.0.1:5000/capmaas-manager:v0.1.0":  "127.0.0.1:5000/capmaas-manager",
		"127.0.0.1:5000/capmaas-manager":         "127.0.0.1:5000/capmaas-manager",
	} {
		if got := repositoryOf(reference); got != want {
			t.Errorf("the repository of %s is %s, want %s", reference, got, want)
		}
	}
}

func TestArgumentsThatAreNeeded(t *testing.T) {
	good := []string{"--version=v0.1.0", "--registry=ghcr.io/capmaas", "--image-manager=a:v1", "--image-lxd-initializer=b:v1"}
	r, _, err := parse(good)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.platforms) != 6 || len(r.archs) != 2 {
		t.Errorf("by default there are platforms %v and processors %v", r.platforms, r.archs)
	}
	for i := range good {
		if _, _, err := parse(append(append([]string{}, good[:i]...), good[i+1:]...)); err == nil {
			t.Errorf("accepted without %s", good[i])
		}
	}
	for _, bad := range []string{"v0.2.0", "--platforms=linux"} {
		if _, _, err := parse(append(append([]string{}, good...), bad)); err == nil {
			t.Errorf("accepted with %s", bad)
		}
	}
}

// The chart that is published has its version, and its manager and initializer by digest; else it is the repository's.
func TestPublishedChart(t *testing.T) {
	loaded, err := loader.LoadDir(filepath.Join("..", "..", chartDir))
	if err != nil {
		t.Fatal(err)
	}
	before := loaded.Raw
	digest := func(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }
	files, err := (&release{version: "v0.1.7-rc.1"}).chartFiles(loaded, map[string]pinned{
		"manager": {"127.0.0.1:5000/m", digest("a")}, "lxd-initializer": {"ghcr.io/c/i", digest("b")},
	})
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "chart.tgz")
	if err := writeTar(archive, files, made); err != nil {
		t.Fatal(err)
	}
	published, err := loader.Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := published.Validate(); err != nil {
		t.Error(err)
	}
	if m := published.Metadata; m.Version != "0.1.7-rc.1" || m.AppVersion != "v0.1.7-rc.1" {
		t.Errorf("the version is %s, the app's %s", m.Version, m.AppVersion)
	}
	values, err := chartutil.ToRenderValues(published, map[string]any{"lxdInitializer": map[string]any{"enabled": true}},
		chartutil.ReleaseOptions{Name: "capmaas", Namespace: "capmaas-system"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(published, values)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, text := range rendered {
		all.WriteString(text)
	}
	for _, want := range []string{"image: 127.0.0.1:5000/m@" + digest("a"), "image: ghcr.io/c/i@" + digest("b"), "--initializer-image=ghcr.io/c/i@" + digest("b")} {
		if !strings.Contains(strings.ReplaceAll(all.String(), `"`, ""), want) {
			t.Errorf("nothing rendered has %s", want)
		}
	}
	if len(published.Raw) != len(before) {
		t.Errorf("%d files are published, want %d", len(published.Raw), len(before))
	}
	for i, f := range before {
		after := published.Raw[i]
		want, got := string(f.Data), string(after.Data)
		switch f.Name {
		case chartutil.ChartfileName:
			continue
		case chartutil.ValuesfileName: // The layout may differ, the comments not.
			for _, image := range []struct{ name, repository, digest string }{{"capmaas-manager", "127.0.0.1:5000/m", digest("a")}, {"capmaas-lxd-initializer", "ghcr.io/c/i", digest("b")}} {
				want = strings.Replace(want, "repository: "+image.name, "repository: "+image.repository, 1)
				want = strings.Replace(want, `digest: ""`, `digest: "`+image.digest+`"`, 1)
			}
			want, got = withoutLayout(want), withoutLayout(got)
		}
		if diff := cmp.Diff(want, got); after.Name != f.Name || diff != "" {
			t.Errorf("%s, published as %s (-want +got):\n%s", f.Name, after.Name, diff)
		}
	}
}

// withoutLayout is a text without indentation and empty lines.
func withoutLayout(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// An archive's bytes depend on its contents alone, and Windows gets a zip.
func TestArchives(t *testing.T) {
	files := []packed{{"capmaasctl", []byte("program"), 0o755}, {"LICENSE", []byte("license"), 0o644}}
	dir := t.TempDir()
	for name, write := range map[string]func(string, []packed, time.Time) error{"tar": writeTar, "zip": writeZip} {
		var written [][]byte
		for _, to := range []string{filepath.Join(dir, "one."+name), filepath.Join(dir, "two."+name)} {
			if err := write(to, files, made); err != nil {
				t.Fatal(err)
			}
			written = append(written, read(t, to))
		}
		if !bytes.Equal(written[0], written[1]) {
			t.Errorf("a %s of the same files has other bytes", name)
		}
		unpack := map[string]func(*testing.T, []byte) []packed{"tar": untar, "zip": unzip}[name]
		if diff := cmp.Diff(files, unpack(t, written[0]), cmp.AllowUnexported(packed{})); diff != "" {
			t.Errorf("the %s (-want +got):\n%s", name, diff)
		}
	}
	if got := (platform{"windows", "arm64"}).archive("v0.1.0"); got != "capmaasctl_0.1.0_windows_arm64.zip" {
		t.Errorf("the archive for Windows is %s", got)
	}
}

func untar(t *testing.T, content []byte) (files []packed) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, packed{header.Name, content, header.Mode})
	}
}

func unzip(t *testing.T, content []byte) (files []packed) {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.File {
		opened, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, packed{f.Name, content, int64(f.Mode().Perm())})
	}
	return files
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// krew's manifest names each archive with its checksum, which is also in SHA256SUMS.
func TestKrewManifestAndChecksums(t *testing.T) {
	r := &release{version: "v0.1.0", assets: t.TempDir(), platforms: []platform{{"linux", "amd64"}, {"windows", "arm64"}}}
	archives := map[platform]string{}
	for _, p := range r.platforms {
		archives[p] = filepath.Join(r.assets, p.archive(r.version))
		if err := os.WriteFile(archives[p], []byte(p.os), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeKrewManifest(archives); err != nil {
		t.Fatal(err)
	}
	if err := writeChecksums(r.assets); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksumsFile)
	check.Dir = r.assets
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 3 {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	var manifest plugin
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(r.assets, krewManifest)), &manifest); err != nil {
		t.Fatal(err)
	}
	sums := string(read(t, filepath.Join(r.assets, checksumsFile)))
	for i, p := range manifest.Spec.Platforms {
		name := filepath.Base(archives[r.platforms[i]])
		if !strings.HasSuffix(p.URI, "/releases/download/v0.1.0/"+name) || !strings.Contains(sums, p.SHA256+"  "+name) {
			t.Errorf("%s has %s with the checksum %s", krewManifest, p.URI, p.SHA256)
		}
	}
	if got := manifest.Spec.Platforms[1].Bin; got != "capmaasctl.exe" {
		t.Errorf("the program for Windows is %s", got)
	}
}

func TestSectionOfTheChangelog(t *testing.T) {
	const text = "# Changelog\n\n## Unreleased\n\nnew\n\n## v0.1.1 (2027-01-01)\n\n- one\n- two\n\n## v0.1.0\n\nold\n"
	for version, want := range map[string]string{"v0.1.1": "- one\n- two", "v0.1.0": "old", "v0.2.0": "new"} {
		if got := section(text, version); got != want {
			t.Errorf("section %s: %q, want %q", version, got, want)
		}
	}
	if section(string(read(t, filepath.Join("..", "..", changelog))), "v99.0.0") == "" {
		t.Errorf("%s has no section Unreleased", changelog)
	}
}

func TestLinksOfTheNotesAreAbsolute(t *testing.T) {
	if got, want := absolute("[a](docs/a.md)", "v0.1.0"), "[a]("+homepage+"/blob/v0.1.0/docs/a.md)"; got != want {
		t.Errorf("the link is %s, want %s", got, want)
	}
}

func TestCommitsByArea(t *testing.T) {
	got := byArea([]string{"maasmachine: wait", "api: add a field", "Merge main into x: y", "maasmachine: go on"})
	want := []area{{"api", []string{"add a field"}}, {"maasmachine", []string{"wait", "go on"}}, {"other", []string{"Merge main into x: y"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("areas (-want +got):\n%s", diff)
	}
}

// A release is compared with the release before it, a candidate with the candidate.
func TestPreviousRelease(t *testing.T) {
	dir := t.TempDir()
	run := func(arguments ...string) {
		t.Helper()
		if _, err := git(t.Context(), dir, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, arguments...)...); err != nil {
			t.Fatal(err)
		}
	}
	run("init", "--quiet")
	for _, tag := range []string{"v0.1.0", "v0.1.1-rc.1", "v0.2.0-rc.1", "v0.2.0"} {
		run("commit", "--quiet", "--allow-empty", "--message", tag)
		run("tag", tag)
	}
	for version, want := range map[string]string{"v0.2.0": "v0.1.0", "v0.3.0": "v0.2.0", "v0.3.0-rc.1": "v0.2.0", "v0.2.0-rc.2": "v0.2.0"} {
		if got, err := previousTag(t.Context(), dir, version); err != nil || got != want {
			t.Errorf("before %s comes %q (%v), want %s", version, got, err, want)
		}
	}
	if got, err := previousTag(t.Context(), dir, "v0.2.0"); err != nil || got != "v0.1.0" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNotes(t *testing.T) {
	var out bytes.Buffer
	chart := pinned{"ghcr.io/capmaas/charts/capmaas", "sha256:1"}
	if err := notesTemplate.Execute(&out, map[string]any{
		"Version": "v0.2.0", "ChartVersion": "0.2.0", "Changes": "- Do this.", "Signed": true, "Chart": chart, "Artifacts": []pinned{chart},
		"Previous": "v0.1.0", "Areas": []area{{"api", []string{"add a field"}}}, "Homepage": homepage,
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- Do this.\n\n## Install\n", "oci://ghcr.io/capmaas/charts/capmaas --version 0.2.0 ", "--infrastructure maas:v0.2.0\n",
		"- `ghcr.io/capmaas/charts/capmaas@sha256:1`\n", "\n## Commits since v0.1.0\n\napi:\n\n- add a field\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the notes have no %q:\n%s", want, out.String())
		}
	}
}

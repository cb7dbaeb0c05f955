// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// imagePrograms are the programs of the images.
var imagePrograms = []string{"manager", "lxd-initializer"}

// checkAssets wants exactly the documented files, and all of them in the checksums, which are verified elsewhere.
func (p *publisher) checkAssets(t *testing.T) {
	want := []string{
		"SHA256SUMS", "SHA256SUMS.sigstore.json", "capmaas-" + strings.TrimPrefix(version, "v") + ".tgz", "capmaas.yaml",
		"infrastructure-components.yaml", "lxd-initializer-daemonset.yaml", "metadata.yaml",
	}
	for _, pattern := range []string{"templates/cluster-template*.yaml", "clusterclass/clusterclass-*.yaml"} {
		found, err := filepath.Glob(filepath.Join(repositoryRoot, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s matches %d files: %v", pattern, len(found), err)
		}
		for _, name := range found {
			want = append(want, filepath.Base(name))
		}
	}
	for platform := range strings.FieldsSeq(os.Getenv("RELEASE_PLATFORMS")) {
		want = append(want, filepath.Base(p.archive(version, platform)),
			"capmaasctl_"+strings.ReplaceAll(platform, "/", "_")+".cdx.json")
	}
	for arch := range strings.FieldsSeq(os.Getenv("RELEASE_ARCHS")) {
		for _, name := range imagePrograms {
			want = append(want, name+"_linux_"+arch+".cdx.json")
		}
	}
	slices.Sort(want)
	entries, err := os.ReadDir(p.assets(version))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files of the release (-want +got):\n%s", diff)
	}
	var summed []string
	for line := range strings.Lines(string(read(t, filepath.Join(p.assets(version), "SHA256SUMS")))) {
		summed = append(summed, strings.Fields(line)[1])
	}
	if diff := cmp.Diff(got[2:], summed); diff != "" {
		t.Errorf("the files that have checksums (-want +got):\n%s", diff)
	}
}

// checkPrograms opens each archive and each image, and wants the program of its platform, built for this version. It runs
// what can be run here.
func (p *publisher) checkPrograms(t *testing.T) {
	for platform := range strings.FieldsSeq(os.Getenv("RELEASE_PLATFORMS")) {
		t.Run("capmaasctl/"+platform, func(t *testing.T) {
			p.checkProgram(t, platform, p.program(t, version, platform), "version")
		})
	}
	for arch := range strings.FieldsSeq(os.Getenv("RELEASE_ARCHS")) {
		for _, name := range imagePrograms {
			t.Run(name+"/linux/"+arch, func(t *testing.T) {
				p.checkProgram(t, "linux/"+arch, p.imageProgram(t, name, version, arch), "--version")
			})
		}
	}
}

func (p *publisher) checkProgram(t *testing.T, platform string, content []byte, argument string) {
	t.Helper()
	built := settings(t, content)
	if got := built["GOOS"] + "/" + built["GOARCH"]; got != platform {
		t.Errorf("the program is one for %s, want %s", got, platform)
	}
	command := []string{p.install(t, content, filepath.Join(t.TempDir(), "program")), argument}
	switch system, arch, _ := strings.Cut(platform, "/"); {
	case system != runtime.GOOS:
		if !bytes.Contains(content, []byte(version)) {
			t.Errorf("the program does not know %s", version)
		}
		return // its contents and its checksum were checked; there is nothing here to run it with
	case arch != runtime.GOARCH:
		command = append([]string{emulator(t, arch)}, command...)
	}
	if out := p.must(t, "", command[0], command[1:]...); !strings.Contains(out, version) {
		t.Errorf("the program is %q, want %s", out, version)
	}
}

// emulator is what runs programs of another processor. Debian has it in qemu-user and qemu-user-static.
func emulator(t *testing.T, arch string) string {
	t.Helper()
	if arch == "arm64" {
		for _, name := range []string{"qemu-aarch64", "qemu-aarch64-static"} {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
	}
	t.Skipf("not run: qemu-user has no program for %s here", arch)
	return ""
}

// checkFIPS wants the variant alone to contain and to use Go's validated module: capmaasctl offers a server nothing else.
func (p *publisher) checkFIPS(t *testing.T) {
	for v, want := range map[string]bool{version: false, fips: true} {
		control := p.program(t, v, here)
		programs := map[string][]byte{"capmaasctl": control}
		for _, name := range imagePrograms {
			programs[name] = p.imageProgram(t, name, v, runtime.GOARCH)
		}
		for name, content := range programs {
			built := settings(t, content)
			linked := strings.HasPrefix(built["GOFIPS140"], fipsModule)
			if used := strings.Contains(built["DefaultGODEBUG"], "fips140=on"); linked != want || used != want {
				t.Errorf("%s %s: linked with the module: %t, uses it: %t, want %t", name, v, linked, used, want)
			}
		}
		hello := p.hello(t, p.install(t, control, filepath.Join(t.TempDir(), "program")))
		others := slices.Contains(hello.CipherSuites, tls.TLS_CHACHA20_POLY1305_SHA256) ||
			slices.Contains(hello.SupportedCurves, tls.X25519)
		if others == want {
			t.Errorf("capmaasctl %s offers what FIPS 140-3 does not approve: %t\n%v\n%v", v, others,
				hello.CipherSuites, hello.SupportedCurves)
		}
	}
}

// hello is what capmaasctl offers a server.
func (p *publisher) hello(t *testing.T, program string) *tls.ClientHelloInfo {
	t.Helper()
	offered := make(chan *tls.ClientHelloInfo, 100)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		select {
		case offered <- hello:
		default:
		}
		return nil, nil
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	// It trusts no certificate of the server, so it fails; by then it has said what it offers.
	out, err := p.run(t, "", program, "check", "maas", "--timeout=30s", "--maas-api-key=a:b:c",
		"--maas-endpoint="+server.URL+"/MAAS")
	select {
	case hello := <-offered:
		return hello
	default:
		t.Fatalf("capmaasctl has not called the server: %v\n%s", err, out)
		return nil
	}
}

// settings are those that a program was built with.
func settings(t *testing.T, content []byte) map[string]string {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	built := map[string]string{}
	for _, setting := range info.Settings {
		built[setting.Key] = setting.Value
	}
	return built
}

// archive is the path of capmaasctl's archive for a platform.
func (p *publisher) archive(v, platform string) string {
	extension := ".tar.gz"
	if strings.HasPrefix(platform, "windows/") {
		extension = ".zip"
	}
	name := "capmaasctl_" + strings.TrimPrefix(v, "v") + "_" + strings.ReplaceAll(platform, "/", "_")
	return filepath.Join(p.assets(v), name+extension)
}

// program is capmaasctl of an archive, which has the licence and nothing else besides.
func (p *publisher) program(t *testing.T, v, platform string) []byte {
	t.Helper()
	unpack, name := untar, "capmaasctl"
	if strings.HasPrefix(platform, "windows/") {
		unpack, name = unzip, "capmaasctl.exe"
	}
	files := unpack(t, read(t, p.archive(v, platform)))
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"LICENSE", name}) {
		t.Fatalf("the archive has %v", got)
	}
	if !bytes.Equal(files["LICENSE"], read(t, filepath.Join(repositoryRoot, "LICENSE"))) {
		t.Error("the archive has another licence")
	}
	return files[name]
}

// get gets a manifest or a blob from the registry.
func (p *publisher) get(t *testing.T, path string) []byte {
	t.Helper()
	url := "http://" + p.host + "/v2/capmaas/" + path
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	// The default client would read the settings of the proxy, which the sandbox sets.
	response, err := (&http.Client{Transport: &http.Transport{}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %s", path, err, response.Status)
	}
	return content
}

func (p *publisher) digest(t *testing.T, image, v string) string {
	t.Helper()
	return fmt.Sprintf("sha256:%x", sha256.Sum256(p.get(t, image+"/manifests/"+v)))
}

// imageProgram is the program of an image for a processor. An image has CA roots and nothing else besides.
func (p *publisher) imageProgram(t *testing.T, name, v, arch string) []byte {
	t.Helper()
	var manifest struct {
		Layers    []struct{ Digest string }
		Manifests []struct {
			Digest   string
			Platform struct{ Architecture string }
		}
	}
	image := "capmaas-" + name
	if err := json.Unmarshal(p.get(t, image+"/manifests/"+v), &manifest); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.Platform.Architecture != arch {
			continue
		}
		if err := json.Unmarshal(p.get(t, image+"/manifests/"+m.Digest), &manifest); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string][]byte{}
	for _, layer := range manifest.Layers {
		maps.Copy(files, untar(t, p.get(t, image+"/blobs/"+layer.Digest)))
	}
	want := []string{"etc/ssl/certs/ca-certificates.crt", name}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Fatalf("the image %s:%s for %s has %v, want %v", image, v, arch, got, want)
	}
	return files[name]
}

// untar are the files of a tar.gz.
func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// unzip are the files of a zip.
func unzip(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, f := range archive.File {
		opened, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if files[f.Name], err = io.ReadAll(opened); err != nil {
			t.Fatal(err)
		}
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

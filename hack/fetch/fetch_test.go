// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/refused"
)

// script stands for a tool.
const script = "#!/bin/sh\necho installed\n"

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// archive is a release with one file.
func archive(t *testing.T, member string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	files := tar.NewWriter(zipped)
	if err := files.WriteHeader(&tar.Header{Name: member, Size: int64(len(script)), Mode: 0o755, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(files, script); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// server is a mirror. It counts requests.
func server(t *testing.T, handler http.HandlerFunc) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

func serves(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(content)
	}
}

// trial is a run for clusterctl, which is a program, and kustomize, which is in an archive.
type trial struct {
	*fetcher
	t        *testing.T
	dir, log string
	archive  []byte
}

func newTrial(t *testing.T, mirror string) *trial {
	t.Helper()
	return &trial{fetcher: newFetcher(mirror), t: t, dir: t.TempDir(), archive: archive(t, "./kustomize")}
}

// run reports what was installed.
func (c *trial) run() (installed string, err error) {
	c.t.Helper()
	pins := filepath.Join(c.t.TempDir(), "releases")
	text := fmt.Sprintf("# a comment of four\nclusterctl v1.0.0 %s %s\nkustomize v5.0.0 %s %s\n",
		platform, sumOf([]byte(script)), platform, sumOf(c.archive))
	if err := os.WriteFile(pins, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	var out, log strings.Builder
	c.fetcher.log = &log
	err = c.installAll(c.t.Context(), pins, []string{
		"helm=v3.0.0=" + c.path("helm"), "clusterctl=v1.0.0=" + c.path("clusterctl"), "kustomize=v5.0.0=" + c.path("kustomize"),
	}, &out)
	c.log = log.String()
	return out.String(), err
}

func (c *trial) path(tool string) string { return filepath.Join(c.dir, tool) }

// files are those that are left.
func (c *trial) files() (names []string) {
	c.t.Helper()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestReleasesAreInstalled(t *testing.T) {
	var c *trial
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/github.com/kubernetes-sigs/cluster-api/releases/download/v1.0.0/clusterctl-" + strings.Replace(platform, "/", "-", 1):
			serves([]byte(script))(w, r)
		case "/github.com/kubernetes-sigs/kustomize/releases/download/kustomize/v5.0.0/kustomize_v5.0.0_" +
			strings.Replace(platform, "/", "_", 1) + ".tar.gz":
			serves(c.archive)(w, r)
		default:
			http.NotFound(w, r)
		}
	})
	c = newTrial(t, url+"/")
	installed, err := c.run()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"clusterctl", "kustomize"} {
		if !strings.Contains(installed, tool+" v") {
			t.Errorf("%s is not installed: %q, %s", tool, installed, c.log)
		}
		if out, err := exec.CommandContext(t.Context(), c.path(tool)).Output(); err != nil || string(out) != "installed\n" {
			t.Errorf("%s: %q, %v", tool, out, err)
		}
	}
	if want := []string{"clusterctl", "kustomize"}; !slices.Equal(c.files(), want) {
		t.Errorf("left are %v", c.files())
	}
}

func TestAServerThatLiesIsFound(t *testing.T) {
	for name, lie := range map[string]http.HandlerFunc{
		"another program": serves([]byte("#!/bin/sh\necho evil\n")),
		// Without a length, and cut off: it is not known whether more should come.
		"a part": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, script[:10])
		},
		"nothing": serves(nil),
	} {
		t.Run(name, func(t *testing.T) {
			url, requests := server(t, lie)
			c := newTrial(t, url)
			installed, err := c.run()
			var wrong *sumError
			if !errors.As(err, &wrong) || wrong.want != sumOf([]byte(script)) || wrong.got == wrong.want {
				t.Errorf("got %v", err)
			}
			if installed != "" || len(c.files()) > 0 || requests.Load() != 1 {
				t.Errorf("installed is %q, left are %v, after %d requests", installed, c.files(), requests.Load())
			}
		})
	}
}

func TestWithoutANetworkAllIsBuilt(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	nobody := refused.Port(t)
	for name, handler := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"a proxy's page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<html>Log in</html>")
		},
		"no response": hang,
		"a response that stalls": func(w http.ResponseWriter, r *http.Request) {
			serves([]byte(script[:10]))(w, r)
			w.(http.Flusher).Flush()
			hang(w, r)
		},
		"a response that is cut off": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			serves([]byte(script))(w, r)
		},
		"a redirect to nowhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+nobody, http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, requests := server(t, handler)
			c := newTrial(t, url)
			c.client.Transport.(*http.Transport).ResponseHeaderTimeout = 200 * time.Millisecond
			c.idle = 200 * time.Millisecond
			c.mustBeAway()
			if n := requests.Load(); n != 1 {
				t.Errorf("after the first failure, %d requests followed", n-1)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) { newTrial(t, "http://"+nobody).mustBeAway() })
}

// mustBeAway wants that nothing is installed, that it is no error, and that one line says why.
func (c *trial) mustBeAway() {
	c.t.Helper()
	installed, err := c.run()
	if err != nil || installed != "" || len(c.files()) > 0 {
		c.t.Errorf("installed is %q, left are %v, error %v", installed, c.files(), err)
	}
	if strings.Count(c.log, "\n") != 1 || !strings.Contains(c.log, "building from source: "+c.mirror) {
		c.t.Errorf("the log is %q", c.log)
	}
}

// build runs hack/tools/build.sh for kustomize, with a file of checksums of its own.
func build(t *testing.T, bin, mirror, sum string) (string, error) {
	t.Helper()
	root := filepath.Join("..", "..")
	pins := filepath.Join(bin, "releases")
	line := "kustomize " + versions(t)["kustomize"] + " " + platform + " " + sum + "\n"
	if err := os.WriteFile(pins, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join("hack", "tools", "build.sh"), "kustomize")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BIN="+bin, "RELEASES="+pins, "TOOLS_MIRROR="+mirror)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// versions are those that hack/tools/build.sh would install.
func versions(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "tools", "build.sh"), "versions")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		tool, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[tool] = version
	}
	return all
}

func TestToolsAreDownloadedOnce(t *testing.T) {
	content := archive(t, "kustomize")
	url, requests := server(t, serves(content))
	bin := t.TempDir()
	for range 2 {
		if out, err := build(t, bin, url, sumOf(content)); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if got, err := os.ReadFile(filepath.Join(bin, "kustomize")); err != nil || string(got) != script || requests.Load() != 1 {
		t.Errorf("%q is installed, after %d requests: %v", got, requests.Load(), err)
	}
	// Another checksum is another release.
	if out, err := build(t, bin, url, sumOf([]byte(script))); err == nil || !strings.Contains(out, sumOf(content)) {
		t.Errorf("the lie is not found: %v\n%s", err, out)
	}
}

func TestPinsAreOfTheVersionsThatAreUsed(t *testing.T) {
	pins, err := readPins(filepath.Join("..", "tools", "releases"))
	if err != nil || len(pins) == 0 {
		t.Fatalf("%d pins: %v", len(pins), err)
	}
	used := versions(t)
	for _, p := range pins {
		if used[p.tool] != p.version || !sumForm.MatchString(p.sum) {
			t.Errorf("hack/tools/releases has %v, and go.mod %s: run `make tools-pins`, or remove the line", p, used[p.tool])
		}
		if _, _, err := place(p); err != nil {
			t.Error(err)
		}
	}
	for tool := range releases {
		if used[tool] == "" {
			t.Errorf("hack/tools/build.sh does not know %s", tool)
		}
	}
}

func TestPinsAreWhatIsPublished(t *testing.T) {
	const a, b, c = "aa", "bb", "cc"
	long := func(s string) string { return strings.Repeat(s, 32) }
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/api.github.com/repos/etcd-io/etcd/releases/tags/v3.6.0":
			fmt.Fprintf(w, `{"assets": [{"name": "etcd-v3.6.0-linux-amd64.tar.gz", "digest": "sha256:%s"},
				{"name": "etcd-v3.6.0-linux-arm64.tar.gz", "digest": "sha256:%s"}]}`, long(a), long(a))
		case strings.HasPrefix(path, "/get.helm.sh/helm-v3.0.0-") && strings.HasSuffix(path, ".tar.gz.sha256sum"):
			fmt.Fprintf(w, "%s  helm.tar.gz\n", long(b))
		case strings.HasPrefix(path, "/dl.k8s.io/release/v1.35.0/bin/linux/") && strings.HasSuffix(path, "/kubelet.sha256"):
			fmt.Fprint(w, long(c))
		default:
			http.NotFound(w, r)
		}
	})
	f := newFetcher(url)
	file := filepath.Join(t.TempDir(), "releases")
	if err := f.pin(t.Context(), strings.NewReader("previous-kubelet v1.35.0\nhelm v3.0.0\nkube-vip v1\netcd v3.6.0\n"), file); err != nil {
		t.Fatal(err)
	}
	pins, err := readPins(file)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int{}
	for _, p := range pins {
		sums[p.tool+" "+p.sum]++
	}
	if len(pins) != 8 || sums["etcd "+long(a)] != 2 || sums["helm "+long(b)] != 4 || sums["previous-kubelet "+long(c)] != 2 {
		t.Errorf("pinned is %v", pins)
	}
	// What is not published is an error, and the file stays.
	if err := f.pin(t.Context(), strings.NewReader("etcd v9\n"), file); err == nil {
		t.Error("nothing is published, and that is no error")
	}
	if after, err := readPins(file); err != nil || len(after) != len(pins) {
		t.Errorf("the file has changed: %v, %v", after, err)
	}
}

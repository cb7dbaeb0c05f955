// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

const (
	repositoryRoot = "../.."
	project        = "/capmaas/cluster-api-provider-maas"
	documentedURL  = "https://github.com" + project + "/releases/latest/infrastructure-components.yaml"
	coreVersion    = "v1.14.2"
	coreMetadata   = `apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries: [{major: 1, minor: 14, contract: v1beta2}]
`
	// coreComponents have no pods, because Cluster API runs in the sandbox already. Whether a provider is ready the
	// Cluster API Operator sees from its Deployment.
	coreComponents = `apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s-controller-manager, namespace: %[1]s-system}
spec:
  replicas: 0
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: manager, image: "example.com/none:v1"}]}
`
)

// publisher makes releases, and serves them.
type publisher struct {
	dir, home string
	host      string // of the registry
	registry  string // with the path
	proxy     string // leads to the stand-ins of GitHub and of Go's module proxy
	authority string // the file with the certificate that they have
	publicKey string
	tools     string // the directory of what users and the operator run
	managers  string // the directory of the managers; the one that runs is "current"
	env       []string
}

// moduleProxy is the host of the stand-in for a proxy of Go modules.
const moduleProxy = "modules.example.com"

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	p := &publisher{dir: t.TempDir(), home: t.TempDir(), managers: t.TempDir(), tools: os.Getenv("CAPMAAS_BIN")}
	images := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(images.Close)
	p.host = strings.TrimPrefix(images.URL, "http://")
	p.registry = p.host + "/capmaas"

	sites := httptest.NewUnstartedServer(http.HandlerFunc(p.serveSites))
	own := certificate(t, "github.com", "api.github.com", moduleProxy)
	sites.TLS = &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	sites.StartTLS()
	t.Cleanup(sites.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnel(w, r, sites.Listener.Addr().String())
	}))
	t.Cleanup(proxy.Close)
	p.proxy = strings.TrimPrefix(proxy.URL, "http://")
	p.authority = p.write(t, "ca.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sites.Certificate().Raw})))

	path := strings.Join([]string{p.tools, os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("PATH")}, ":")
	p.env = []string{
		"HOME=" + p.home, "XDG_CONFIG_HOME=" + p.home, "PATH=" + path,
		"HTTPS_PROXY=" + proxy.URL, "NO_PROXY=127.0.0.1", "SSL_CERT_FILE=" + p.authority,
		"GOPROXY=https://" + moduleProxy, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "CLUSTER_TOPOLOGY=true", "COSIGN_PASSWORD=",
	}
	p.must(t, p.home, "cosign", "generate-key-pair")
	p.publicKey = filepath.Join(p.home, "cosign.pub")
	return p
}

// release makes a release with variables of make, in the environment of the test and a storage of images of its own.
func (p *publisher) release(t *testing.T, v string, variables ...string) {
	t.Helper()
	services := p.write(t, "signing-config.json",
		`{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json", "rekorTlogConfig": {}, "tsaConfig": {}}`)
	storage := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n",
		filepath.Join(p.dir, "graph"), filepath.Join(p.dir, "run"))
	registries := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", p.host)
	began := time.Now()
	command := exec.CommandContext(t.Context(), "make", append(variables, "release", "VERSION="+v, "REGISTRY="+p.registry,
		"IMAGE_TOOL=buildah", "OUT="+filepath.Join(p.dir, v), "SIGN=1", "COSIGN_KEY="+filepath.Join(p.home, "cosign.key"),
		"COSIGN_SIGNING_CONFIG="+services)...)
	command.Dir, command.Env = repositoryRoot, append(os.Environ(), "COSIGN_PASSWORD=", "BUILDAH_ISOLATION=chroot", "TLS_VERIFY=false",
		"TMPDIR="+p.dir, "CONTAINERS_STORAGE_CONF="+p.write(t, "storage.conf", storage),
		"CONTAINERS_REGISTRIES_CONF="+p.write(t, "registries.conf", registries))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	t.Logf("make release %s, VERSION=%s: %s", strings.Join(variables, " "), v, time.Since(began).Round(time.Second))
}

func (p *publisher) assets(v string) string { return filepath.Join(p.dir, v, "release", "assets") }

// certificate is one for names, signed by itself.
func certificate(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	content, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{content}, PrivateKey: key}
}

// serveSites serves the files of releases as GitHub does, and their versions as Go's module proxy does: there clusterctl
// and the Cluster API Operator look for them.
func (p *publisher) serveSites(w http.ResponseWriter, r *http.Request) {
	if r.Host == moduleProxy {
		serveVersions(w, r)
		return
	}
	owner, file, _ := strings.Cut(r.URL.Path, "/releases/download/")
	switch name := filepath.Base(file); {
	case owner == project:
		http.ServeFile(w, r, filepath.Join(p.assets(filepath.Dir(file)), name))
	case name == "metadata.yaml":
		_, _ = io.WriteString(w, coreMetadata)
	default:
		_, _ = fmt.Fprintf(w, coreComponents, strings.TrimSuffix(name, "-components.yaml"))
	}
}

func serveVersions(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/github.com" + project + "/@v/list":
		_, _ = io.WriteString(w, before+"\n"+version+"\n")
	case "/sigs.k8s.io/cluster-api/@v/list", "/github.com/kubernetes-sigs/cluster-api/@v/list":
		_, _ = io.WriteString(w, coreVersion+"\n")
	default:
		http.NotFound(w, r)
	}
}

// tunnel connects whoever asks for any host to one address.
func tunnel(w http.ResponseWriter, r *http.Request, address string) {
	server, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = server.Close() }()
	caller, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = caller.Close() }()
	_, _ = io.WriteString(caller, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, caller)
		_ = server.Close()
	}()
	_, _ = io.Copy(caller, server)
}

// write writes a file in the user's directory.
func (p *publisher) write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(p.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// install writes a program, by another process: what this one has written to may be busy when it is started.
func (p *publisher) install(t *testing.T, program []byte, to string) string {
	t.Helper()
	p.must(t, "", "install", "--mode=0700", p.write(t, "program", string(program)), to)
	return to
}

func (p *publisher) apply(t *testing.T, manifest string) {
	t.Helper()
	p.must(t, "", "kubectl", "apply", "--filename", p.write(t, "manifest.yaml", manifest))
}

// run runs a program as a user would, who has nothing but what was published.
func (p *publisher) run(t *testing.T, dir, program string, arguments ...string) (string, error) {
	t.Helper()
	// env looks in the PATH of the user.
	command := exec.CommandContext(t.Context(), "env", append([]string{program}, arguments...)...)
	command.Dir, command.Env = dir, p.env
	out, err := command.CombinedOutput()
	return string(out), err
}

func (p *publisher) must(t *testing.T, dir, program string, arguments ...string) string {
	t.Helper()
	out, err := p.run(t, dir, program, arguments...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(arguments, " "), err, out)
	}
	return out
}

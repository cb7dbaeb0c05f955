// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
)

// certManagerKinds make clusterctl find a cert-manager: it only checks that the API server accepts a certificate.
const certManagerKinds = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: issuers.cert-manager.io},
  spec: {group: cert-manager.io, scope: Namespaced, names: {kind: Issuer, plural: issuers, singular: issuer},
    versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: certificates.cert-manager.io},
  spec: {group: cert-manager.io, scope: Namespaced, names: {kind: Certificate, plural: certificates, singular: certificate},
    versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`

// publisher makes releases, and serves them.
type publisher struct {
	dir, home string
	host      string // of the registry
	registry  string // with the path
	publicKey string
	env       []string
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	p := &publisher{dir: t.TempDir(), home: t.TempDir()}
	images := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(images.Close)
	p.host = strings.TrimPrefix(images.URL, "http://")
	p.registry = p.host + "/capmaas"
	github := httptest.NewUnstartedServer(http.HandlerFunc(p.serveGitHub))
	github.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, "github.com", "api.github.com")}, MinVersion: tls.VersionTLS12}
	github.StartTLS()
	t.Cleanup(github.Close)
	versions := httptest.NewServer(http.HandlerFunc(p.serveVersions))
	t.Cleanup(versions.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tunnel(w, r, github.Listener.Addr().String()) }))
	t.Cleanup(proxy.Close)

	authority := p.write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: github.Certificate().Raw})))
	p.env = append(p.env, "HOME="+p.home, "XDG_CONFIG_HOME="+p.home, "PATH="+os.Getenv("CAPMAAS_BIN")+":"+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"),
		"HTTPS_PROXY="+proxy.URL, "NO_PROXY=127.0.0.1", "SSL_CERT_FILE="+authority, "GOPROXY="+versions.URL,
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "CLUSTER_TOPOLOGY=true", "COSIGN_PASSWORD=")
	p.must(t, p.home, "cosign", "generate-key-pair")
	p.publicKey = filepath.Join(p.home, "cosign.pub")
	return p
}

// release makes a release, with the environment of the test and a storage of images of its own.
func (p *publisher) release(t *testing.T, v, archs, platforms string) {
	t.Helper()
	services := p.write(t, "signing-config.json", `{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json", "rekorTlogConfig": {}, "tsaConfig": {}}`)
	storage := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(p.dir, "graph"), filepath.Join(p.dir, "run"))
	command := exec.CommandContext(t.Context(), "make", "release", "VERSION="+v, "REGISTRY="+p.registry, "IMAGE_TOOL=buildah", "OUT="+filepath.Join(p.dir, v),
		"RELEASE_ARCHS="+archs, "RELEASE_PLATFORMS="+platforms, "SIGN=1", "COSIGN_KEY="+filepath.Join(p.home, "cosign.key"), "COSIGN_SIGNING_CONFIG="+services)
	command.Dir, command.Env = repositoryRoot, append(os.Environ(), "COSIGN_PASSWORD=", "BUILDAH_ISOLATION=chroot", "TMPDIR="+p.dir,
		"CONTAINERS_STORAGE_CONF="+p.write(t, "storage.conf", storage),
		"CONTAINERS_REGISTRIES_CONF="+p.write(t, "registries.conf", fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", p.host)))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
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

// serveGitHub serves the files of releases. Cluster API's have nothing in them: it runs in the sandbox already.
func (p *publisher) serveGitHub(w http.ResponseWriter, r *http.Request) {
	owner, file, _ := strings.Cut(r.URL.Path, "/releases/download/")
	switch name := filepath.Base(file); {
	case owner == project:
		http.ServeFile(w, r, filepath.Join(p.assets(filepath.Dir(file)), name))
	case name == "metadata.yaml":
		_, _ = io.WriteString(w, "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries: [{major: 1, minor: 14, contract: v1beta2}]\n")
	default:
		_, _ = io.WriteString(w, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+strings.TrimSuffix(name, "-components.yaml")+"-system}\n")
	}
}

// serveVersions is the part of a Go module proxy by which clusterctl learns of versions.
func (p *publisher) serveVersions(w http.ResponseWriter, r *http.Request) {
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

// get gets a manifest or a blob from the registry.
func (p *publisher) get(t *testing.T, path string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.host+"/v2/capmaas/"+path, http.NoBody)
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

// programs returns a directory with the tools, and the manager of the published image.
func (p *publisher) programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var manifest struct{ Manifests, Layers []struct{ Digest string } }
	reference := version
	for manifest.Layers == nil {
		if err := json.Unmarshal(p.get(t, "capmaas-manager/manifests/"+reference), &manifest); err != nil {
			t.Fatal(err)
		}
		if manifest.Layers == nil {
			reference = manifest.Manifests[0].Digest // amd64 is the first that is built
		}
	}
	for _, layer := range manifest.Layers {
		p.unpack(t, p.get(t, "capmaas-manager/blobs/"+layer.Digest), dir)
	}
	if out := p.must(t, dir, filepath.Join(dir, "manager"), "--version"); strings.TrimSpace(out) != version {
		t.Errorf("the manager in the image is %q, want %s", out, version)
	}
	return dir
}

// unpack writes the manager of a layer to a directory.
func (p *publisher) unpack(t *testing.T, layer []byte, dir string) {
	t.Helper()
	plain, err := gzip.NewReader(strings.NewReader(string(layer)))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != "manager" {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "manager"), content, 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
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

func (p *publisher) apply(t *testing.T, manifest string) {
	t.Helper()
	p.must(t, "", "kubectl", "apply", "--filename", p.write(t, "manifest.yaml", manifest))
}

// run runs a program as a user would, who has nothing but what was published.
func (p *publisher) run(t *testing.T, dir, program string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "env", append([]string{program}, arguments...)...) // which looks in the PATH below
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

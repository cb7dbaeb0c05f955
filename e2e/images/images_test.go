// SPDX-License-Identifier: Apache-2.0

// Package images_test builds the images with buildah, pushes them to its own registry, and starts their programs.
package images_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	repositoryRoot = "../.."
	version        = "v1.2.3"
	revision       = "0123456789abcdef0123456789abcdef01234567"
	rootsFile      = "etc/ssl/certs/ca-certificates.crt"
	// made is the creation time in the images.
	made = 1700000000
)

// program is an image's program, with its labels.
type program struct{ name, user, title string }

var programs = []program{
	{"manager", "65532:65532", "Cluster API Provider MAAS"},
	{"lxd-initializer", "0:0", "LXD initializer of Cluster API Provider MAAS"},
}

// architectures returns those for which images are built: this machine's, or with CAPMAAS_IMAGES=full all, which
// compiles everything again.
func architectures() []string {
	if os.Getenv("CAPMAAS_IMAGES") == "full" {
		return []string{"amd64", "arm64"}
	}
	return []string{runtime.GOARCH}
}

// builder builds and pushes images with buildah, which has its storage in a directory of the test.
type builder struct {
	registry *registry
	env      []string
}

func newBuilder(t *testing.T, registry *registry) *builder {
	t.Helper()
	dir := t.TempDir()
	trusted := filepath.Join(dir, "trusted")
	if err := os.Mkdir(trusted, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	storage := fmt.Sprintf("[storage]\ndriver = %q\ngraphroot = %q\nrunroot = %q\n", "vfs", filepath.Join(dir, "graph"), filepath.Join(dir, "run"))
	write("trusted/registry.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: registry.certificate.Raw})))
	return &builder{registry: registry, env: append(os.Environ(),
		"CONTAINERS_STORAGE_CONF="+write("storage.conf", storage), "SSL_CERT_DIR="+trusted, // besides the system's file of roots
		"BUILDAH_ISOLATION=chroot", "TMPDIR="+dir, "SOURCE_DATE_EPOCH="+strconv.Itoa(made), "REVISION="+revision,
	)}
}

// make runs targets of the Makefile in a copy of the repository, for images of a tag.
func (b *builder) make(t *testing.T, dir, umask, tag string, archs []string, targets ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `umask "$0" && exec make "$@"`, umask,
		"IMAGE_TOOL=buildah", "VERSION=" + version, "REGISTRY=" + b.registry.address, "TAG=" + tag, "IMAGE_ARCH=" + strings.Join(archs, " "),
	}, targets...)...)
	command.Dir, command.Env = dir, b.env
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", strings.Join(targets, " "), err, out)
	}
}

// copySources copies what is, or would be, in the repository, to two directories: others may be writing to it.
func copySources(t *testing.T, to ...string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir, list.Stderr = repositoryRoot, t.Output()
	names, err := list.Output()
	if err != nil {
		t.Fatalf("listing the repository's files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(repositoryRoot, name))
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted, or a link, which no build needs
		}
		content, err := os.ReadFile(filepath.Join(repositoryRoot, name))
		for _, dir := range to {
			path := filepath.Join(dir, name)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(path), 0o700)
			}
			if err == nil {
				err = os.WriteFile(path, content, info.Mode().Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The images hold a program and CA roots, for each architecture; the programs start in them, and the manager trusts
// what those roots trust. Built again from another directory, at another time and with another umask, they have the
// same digests.
func TestImages(t *testing.T) {
	requireBuildah(t)
	one, two := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere", "and deeper")
	copySources(t, one, two)
	registry := newRegistry(t)
	b := newBuilder(t, registry)
	b.make(t, one, "022", "one", architectures(), "docker-build", "docker-push")

	for _, p := range programs {
		images := pushed(t, registry, "capmaas-"+p.name, "one", architectures())
		for _, arch := range architectures() {
			t.Run(p.name+"/"+arch, func(t *testing.T) {
				checkConfig(t, images[arch], p)
				checkFiles(t, images[arch], p)
			})
		}
		t.Run(p.name+"/Starts", func(t *testing.T) { checkStarts(t, images[runtime.GOARCH], p) })
	}
	t.Run("AreReproducible", func(t *testing.T) {
		b.make(t, two, "077", "two", architectures(), "docker-build", "docker-push")
		for _, p := range programs {
			var ignored map[string]any
			first := registry.manifest(t, "capmaas-"+p.name, "one", &ignored)
			second := registry.manifest(t, "capmaas-"+p.name, "two", &ignored)
			if first != second {
				t.Errorf("the image of %s has the digest %s, and built again %s", p.name, first, second)
			}
		}
	})
}

// checkConfig checks how a container of the image is started, and its labels.
func checkConfig(t *testing.T, i image, p program) {
	t.Helper()
	got := i.config.Config
	if got.User != p.user {
		t.Errorf("the user is %q, want %q", got.User, p.user)
	}
	if diff := cmp.Diff([]string{"/" + p.name}, got.Entrypoint); diff != "" {
		t.Errorf("the entry point (-want +got):\n%s", diff)
	}
	at := time.Unix(made, 0).UTC()
	if !i.config.Created.Equal(at) {
		t.Errorf("it was made at %s, want %s", i.config.Created, at)
	}
	const prefix = "org.opencontainers.image."
	want := map[string]string{
		prefix + "title": p.title, prefix + "licenses": "Apache-2.0", prefix + "source": "https://github.com/capmaas/cluster-api-provider-maas",
		prefix + "version": version, prefix + "revision": revision, prefix + "created": at.Format(time.RFC3339),
	}
	labels := maps.Clone(got.Labels)
	if labels[prefix+"description"] == "" {
		t.Error("it has no description")
	}
	delete(labels, prefix+"description")
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// checkFiles checks that the image holds the program, static and for its architecture, and CA roots, and nothing else.
func checkFiles(t *testing.T, i image, p program) {
	t.Helper()
	const dir, file, executable = "drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"
	want := map[string]string{
		p.name: executable, "etc/": dir, "etc/ssl/": dir, "etc/ssl/certs/": dir, rootsFile: file,
	}
	got := map[string]string{}
	for name, f := range i.files {
		got[name] = f.header.FileInfo().Mode().String()
		if f.header.Uid != 0 || f.header.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", name, f.header.Uid, f.header.Gid)
		}
		if f.header.ModTime.Unix() != made {
			t.Errorf("%s is of %s", name, f.header.ModTime)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	checkRoots(t, i.files[rootsFile].content)
	checkStatic(t, i.files[p.name].content, i.config.Architecture)
}

// checkStarts starts the program in the image's file system, as the image's user.
func checkStarts(t *testing.T, i image, p program) {
	t.Helper()
	root := i.unpack(t)
	out, err := run(t, i, root, nil, "--version")
	if err != nil || strings.TrimSpace(out) != version {
		t.Errorf("--version: %v, %q, want %q", err, out, version)
	}
	if out, err := run(t, i, root, nil, "--help"); err != nil {
		t.Errorf("--help: %v\n%s", err, out)
	}
	if p.name == "manager" {
		checkTrust(t, i, root)
	}
}

// checkTrust runs the manager's check against a Kubernetes and a MAAS: it trusts the certificates that the CA roots
// trust, and no others.
func checkTrust(t *testing.T, i image, root string) {
	t.Helper()
	maas := serveMAAS(t)
	mount := func(name, content string) {
		path := filepath.Join(root, name)
		//nolint:gosec // As a Pod's volumes are: the program is another user.
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	mount("mnt/maas/config/maasEndpoint", maas.URL+"/MAAS")
	mount("mnt/maas/credentials/apiKey", apiKey)
	mount("mnt/kubeconfig", kubeconfig(t))
	check := func() (string, error) {
		return run(t, i, root, []string{"KUBECONFIG=/mnt/kubeconfig"}, "check", "--maas-config-dir", "/mnt/maas")
	}
	if out, err := check(); err == nil {
		t.Errorf("it trusts a MAAS that no root vouches for:\n%s", out)
	}
	mount(rootsFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: maas.Certificate().Raw})))
	if out, err := check(); err != nil || !strings.Contains(out, maas.URL) {
		t.Errorf("check: %v\n%s", err, out)
	}
}

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// descriptor points to content, as in OCI's image specification.
type descriptor struct {
	Digest   string `json:"digest"`
	Platform struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// image is a pushed image, for one architecture.
type image struct {
	config struct {
		OS           string    `json:"os"`
		Architecture string    `json:"architecture"`
		Created      time.Time `json:"created"`
		Config       struct {
			User       string
			Entrypoint []string
			Env        []string
			Labels     map[string]string
		} `json:"config"`
	}
	files map[string]fileInImage
}

type fileInImage struct {
	header  *tar.Header
	content []byte
}

// pushed are the images of a tag, by architecture: one image, or a list of them.
func pushed(t *testing.T, r *registry, name, tag string, archs []string) map[string]image {
	t.Helper()
	if len(archs) == 1 {
		return map[string]image{archs[0]: pull(t, r, name, tag, archs[0])}
	}
	var list struct {
		Manifests []descriptor `json:"manifests"`
	}
	r.manifest(t, name, tag, &list)
	images := map[string]image{}
	var listed []string
	for _, m := range list.Manifests {
		listed = append(listed, m.Platform.OS+"/"+m.Platform.Architecture)
		images[m.Platform.Architecture] = pull(t, r, name, m.Digest, m.Platform.Architecture)
	}
	var want []string
	for _, arch := range archs {
		want = append(want, "linux/"+arch)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Fatalf("the list %s:%s (-want +got):\n%s", name, tag, diff)
	}
	return images
}

func pull(t *testing.T, r *registry, name, reference, arch string) image {
	t.Helper()
	var manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	r.manifest(t, name, reference, &manifest)
	i := image{files: map[string]fileInImage{}}
	if err := json.Unmarshal(r.blob(t, manifest.Config.Digest), &i.config); err != nil {
		t.Fatalf("the configuration of %s: %v", name, err)
	}
	if i.config.OS != "linux" || i.config.Architecture != arch {
		t.Errorf("%s is for %s/%s, want linux/%s", name, i.config.OS, i.config.Architecture, arch)
	}
	for _, layer := range manifest.Layers {
		if err := i.add(r.blob(t, layer.Digest)); err != nil {
			t.Fatalf("a layer of %s: %v", name, err)
		}
	}
	return i
}

// add adds the files of a layer. There is none that removes any.
func (i image) add(layer []byte) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		i.files[strings.TrimPrefix(header.Name, "./")] = fileInImage{header, content}
	}
}

// unpack writes the files to a directory.
func (i image) unpack(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	//nolint:gosec // The program is another user.
	for dir := root; filepath.Base(dir) != filepath.Base(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range i.files {
		path := filepath.Join(root, name)
		var err error
		if f.header.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o755) //nolint:gosec // As above.
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.content, f.header.FileInfo().Mode().Perm())) //nolint:gosec // As above.
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// run runs the entry point with arguments as the image's user, with root as all of its file system, and returns its
// output.
func run(t *testing.T, i image, root string, env []string, arguments ...string) (string, error) {
	t.Helper()
	user, group, _ := strings.Cut(i.config.Config.User, ":")
	uid, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(group, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	entry := i.config.Config.Entrypoint
	command := exec.CommandContext(t.Context(), entry[0], append(entry[1:], arguments...)...)
	command.Dir, command.Env = "/", slices.Concat(i.config.Config.Env, []string{"HOME=/"}, env) // As container runtimes do.
	command.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, Pdeathsig: syscall.SIGKILL,
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

// checkStatic checks that a program is for an architecture, and needs no other file to start.
func checkStatic(t *testing.T, content []byte, arch string) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; file.Machine != want {
		t.Errorf("the program is for %s, want %s", file.Machine, want)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program is not static: it has a %s", p.Type)
		}
	}
}

// checkRoots checks that a file has CA roots as programs read them, and many.
func checkRoots(t *testing.T, content []byte) {
	t.Helper()
	count := 0
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !root.IsCA {
			t.Errorf("the %dth CA root: %v, CA: %t", count, err, root != nil && root.IsCA)
		}
		count++
	}
	if count < fewestRoots {
		t.Errorf("there are %d CA roots, want %d at least", count, fewestRoots)
	}
}

// fewestRoots is well below what Mozilla trusts.
const fewestRoots = 100

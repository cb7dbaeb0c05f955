// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	configDir = "/etc/kubernetes/"
	// manifestDir is where the kubelet finds static pods.
	manifestDir = configDir + "manifests/"
)

// errManifestInPlace is for a file that the kubelet might read before it is complete, or whose change restarts a pod.
var errManifestInPlace = errors.New("files of static pods must be moved into place as a whole, and stay as they are")

// disk is a directory with copies of the user data's files, at which commands are tried.
type disk struct{ root string }

func newDisk(files map[string]string) (*disk, error) {
	root, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return nil, err
	}
	d := &disk{root}
	for name, content := range files {
		if err := d.write(name, content); err != nil {
			d.remove()
			return nil, err
		}
	}
	return d, nil
}

func (d *disk) write(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(d.path(name), []byte(content), 0o600)
}

func (d *disk) path(name string) string { return filepath.Join(d.root, name) }

func (d *disk) remove() { _ = os.RemoveAll(d.root) }

// filePrograms are those that touch nothing but the files that they name.
var filePrograms = []string{"sed", "test", "ln", "mkdir", "mv"}

// run runs the commands that do nothing but change files below configDir. A file in manifestDir must be, after each
// command, what it was before, or one that was elsewhere: then the kubelet never sees half of it.
func (d *disk) run(ctx context.Context, commands []string) error {
	there := strings.NewReplacer(" "+configDir, " "+d.root+configDir, " /run/kubeadm/", " "+d.root+"/run/kubeadm/")
	for _, command := range commands {
		program, _, _ := strings.Cut(command, " ")
		if !slices.Contains(filePrograms, program) || !strings.Contains(command, " "+configDir) {
			continue
		}
		before, err := d.inodes()
		if err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "sh", "-c", there.Replace(command)).CombinedOutput(); err != nil {
			return fmt.Errorf("running %q: %w: %s", command, err, out)
		}
		if err := d.checkManifests(before); err != nil {
			return fmt.Errorf("running %q: %w", command, err)
		}
	}
	return nil
}

// inodes are all files, by path.
func (d *disk) inodes() (map[string]os.FileInfo, error) {
	files := map[string]os.FileInfo{}
	err := filepath.WalkDir(d.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[path], err = entry.Info()
		return err
	})
	return files, err
}

// checkManifests compares the files of static pods with all files before.
func (d *disk) checkManifests(before map[string]os.FileInfo) error {
	entries, err := os.ReadDir(d.path(manifestDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		path := d.path(manifestDir + entry.Name())
		was, replaced := before[path]
		switch {
		case replaced && os.SameFile(was, info) && was.ModTime().Equal(info.ModTime()):
		case !replaced && slices.ContainsFunc(slices.Collect(maps.Values(before)), func(f os.FileInfo) bool { return os.SameFile(f, info) }):
		default:
			return fmt.Errorf("%s: %w", manifestDir+entry.Name(), errManifestInPlace)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// releasesDir has a directory of programs for each release, and releaseLink leads to that of the machine's image.
	releasesDir = "/usr/local/lib/kubernetes"
	releaseLink = releasesDir + "/current"
)

var errVersion = errors.New("no such version of Kubernetes is prepared")

// release is a version of Kubernetes that nodes can run.
type release struct {
	version string
	// dirs have its programs.
	dirs []string
	// images are the names of kubeadm's, by the last part without the version.
	images map[string]string
}

// Versions returns the versions of Kubernetes that nodes can run: images of MAAS whose names end with k8s- and one of them
// have it. bin is the directory of tools.
func Versions(ctx context.Context, bin string) (previous, current string, err error) {
	all, err := newReleases(ctx, bin)
	if err != nil {
		return "", "", err
	}
	return all[1].version, all[0].version, nil
}

// newReleases returns what the tools are for, the newest first.
func newReleases(ctx context.Context, bin string) (all [2]release, err error) {
	node := filepath.Join(bin, "node")
	for i, dirs := range [][]string{{node, filepath.Join(bin, "k8s")}, {filepath.Join(node, "previous")}} {
		if all[i], err = newRelease(ctx, dirs); err != nil {
			return all, err
		}
	}
	return all, nil
}

func newRelease(ctx context.Context, dirs []string) (release, error) {
	r := release{dirs: dirs, images: map[string]string{}}
	out, err := exec.CommandContext(ctx, r.program("kubeadm"), "version", "--output", "short").Output()
	if err != nil {
		return r, fmt.Errorf("asking kubeadm for its version (`make tools-node` builds it): %w", err)
	}
	r.version = strings.TrimSpace(string(out))
	list, err := exec.CommandContext(ctx, r.program("kubeadm"), "config", "images", "list", "--kubernetes-version", r.version).Output()
	if err != nil {
		return r, fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	for _, reference := range strings.Fields(string(list)) {
		name, _, _ := strings.Cut(reference[strings.LastIndex(reference, "/")+1:], ":")
		r.images[name] = reference
	}
	return r, nil
}

// program returns the path of a program, whether it is there or not.
func (r release) program(name string) (path string) {
	for _, dir := range r.dirs {
		path = filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	return path
}

// installed returns the version of Kubernetes that an image of MAAS holds, by its name: it ends with k8s- and a version.
func (d *disk) installed(image string) (version string, err error) {
	_, wanted, _ := strings.Cut(image, "k8s-")
	wanted = "v" + strings.TrimPrefix(wanted, "v")
	var known []string
	for _, r := range d.releases {
		if r.version == wanted || strings.HasPrefix(r.version, wanted+".") {
			return r.version, nil
		}
		known = append(known, r.version)
	}
	return "", fmt.Errorf("the image %q, where there are %s: %w", image, strings.Join(known, ", "), errVersion)
}

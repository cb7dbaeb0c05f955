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

// nodeImage is a container image that nodes hold: programs by their paths in it, on the layer of Debian's or on none.
type nodeImage struct {
	reference, command string
	base               bool
	programs           map[string]string
}

// writeImages writes the images that nodes run, so that they need no registry. Each disk has those of all releases: a
// cluster that is upgraded keeps add-ons of the version before.
func (d *disk) writeImages(ctx context.Context) error {
	dir := filepath.Join(d.work, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	all, err := d.nodeImages(ctx)
	if err != nil {
		return err
	}
	written := map[string]bool{}
	for _, i := range all {
		if written[i.reference] {
			continue
		}
		written[i.reference] = true
		layer := filepath.Join(d.work, "layer.tar")
		if err := writeLayer(layer, i.programs); err != nil {
			return err
		}
		layers := []string{layer}
		if i.base {
			layers = []string{filepath.Join(d.work, "base-layer.tar"), layer}
		}
		file := filepath.Join(dir, strings.NewReplacer("/", "_", ":", "_").Replace(i.reference)+".tar")
		if err := writeImage(file, containerImage{i.reference, []string{i.command}, layers}); err != nil {
			return fmt.Errorf("writing the image %s: %w", i.reference, err)
		}
	}
	return nil
}

func (d *disk) nodeImages(ctx context.Context) ([]nodeImage, error) {
	proxy, err := d.script("kube-proxy.sh")
	if err != nil {
		return nil, err
	}
	routes, err := d.script("pod-routes.sh")
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for _, name := range []string{"pause", "greeter"} {
		if own[name], err = d.build(ctx, name); err != nil {
			return nil, err
		}
	}
	k8s, node := filepath.Join(d.bin, "k8s"), filepath.Join(d.bin, "node")
	all := []nodeImage{
		{kubeVIP, "/kube-vip", false, map[string]string{"kube-vip": node + "/kube-vip"}},
		{podRoutes, "pod-routes", true, map[string]string{"usr/local/bin/pod-routes": routes, "usr/local/bin/kubectl": k8s + "/kubectl"}},
		{greeter, "/greeter", false, map[string]string{"greeter": own["greeter"]}},
	}
	if d.initializer != "" { // The files of the Dockerfile.
		all = append(all, nodeImage{InitializerImage, "/lxd-initializer", false, map[string]string{
			"lxd-initializer": d.initializer, "etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt",
		}})
	}
	for _, r := range d.releases {
		all = append(all,
			nodeImage{r.images["kube-proxy"], "kube-proxy", true, map[string]string{"usr/local/bin/kube-proxy": proxy, "usr/local/lib/kube-proxy": r.program("kube-proxy")}},
			nodeImage{r.images["etcd"], "etcd", false, map[string]string{"usr/local/bin/etcd": k8s + "/etcd"}},
			nodeImage{r.images["pause"], "/pause", false, map[string]string{"pause": own["pause"]}},
			nodeImage{r.images["coredns"], "/coredns", false, map[string]string{"coredns": node + "/coredns"}},
		)
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			all = append(all, nodeImage{r.images[name], name, false, map[string]string{"usr/local/bin/" + name: r.program(name)}})
		}
	}
	return all, nil
}

// build builds a program of a package below this one, and returns its path.
func (d *disk) build(ctx context.Context, name string) (path string, err error) {
	path = filepath.Join(d.work, name)
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", path, "./test/sandbox/realnode/"+name)
	build.Dir, build.Env = filepath.Dir(d.bin), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", name, err, out)
	}
	return path, nil
}

// script writes an embedded script to a file.
func (d *disk) script(name string) (path string, err error) {
	content, err := scripts.ReadFile("images/" + name)
	if err != nil {
		return "", err
	}
	path = filepath.Join(d.work, name)
	return path, os.WriteFile(path, content, 0o700)
}

func writeImage(path string, image containerImage) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return image.write(f)
}

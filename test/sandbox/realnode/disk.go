// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"archive/tar"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/canonical/lxd/shared/api"
)

const (
	architecture = runtime.GOARCH
	// prepared is the container whose copies are machines' disks, and baseImage what it is made of.
	prepared, baseImage = "prepared", "base"
	// kubeVIP is what the flavors name; podRoutes belongs to the pod network of this package.
	kubeVIP, podRoutes = "ghcr.io/kube-vip/kube-vip:v0.9.1", "capmaas.test/pod-routes:v1"
)

var errVersion = errors.New("no such version of Kubernetes is prepared")

//go:embed all:files
var files embed.FS

//go:embed images
var scripts embed.FS

// disk makes the prepared container: Debian with Kubernetes, whose images are in containerd.
type disk struct {
	containers containers
	// bin has the tools, and work is for files that containers may read.
	bin, work  string
	kubernetes string
	// images are the names of kubeadm's, by the last part without the version.
	images map[string]string
}

func newDisk(ctx context.Context, c containers, bin, work string) (*disk, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "node", "kubeadm"), "version", "--output", "short").Output()
	if err != nil {
		return nil, fmt.Errorf("asking kubeadm for its version (`make tools-node` builds it): %w", err)
	}
	d := &disk{containers: c, bin: bin, work: work, kubernetes: strings.TrimSpace(string(out)), images: map[string]string{}}
	list, err := exec.CommandContext(ctx, filepath.Join(bin, "node", "kubeadm"), "config", "images", "list", "--kubernetes-version", d.kubernetes).Output()
	if err != nil {
		return nil, fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	for _, reference := range strings.Fields(string(list)) {
		name, _, _ := strings.Cut(reference[strings.LastIndex(reference, "/")+1:], ":")
		d.images[name] = reference
	}
	return d, nil
}

// boots reports whether a machine with an image of MAAS can boot this disk.
func (d *disk) boots(image string) error {
	_, version, _ := strings.Cut(image, "k8s-")
	if version == "" || !strings.HasPrefix(d.kubernetes, "v"+version+".") {
		return fmt.Errorf("the image %q, where there is %s: %w", image, d.kubernetes, errVersion)
	}
	return nil
}

// prepare makes the container.
func (d *disk) prepare(ctx context.Context, config map[string]string) error {
	if err := d.importBase(ctx); err != nil {
		return err
	}
	work := map[string]map[string]string{"work": {"type": "disk", "source": d.work, "path": "/mnt"}}
	if err := d.containers.create(ctx, prepared, api.InstanceSource{Type: "image", Alias: baseImage}, config, work); err != nil {
		return err
	}
	if err := d.containers.power(ctx, prepared, true); err != nil {
		return err
	}
	if err := d.writePrograms(); err != nil {
		return err
	}
	if _, err := d.containers.run(ctx, prepared, installScript); err != nil {
		return err
	}
	if err := d.writeImages(ctx); err != nil {
		return err
	}
	if _, err := d.containers.run(ctx, prepared, importScript); err != nil {
		return err
	}
	if err := d.containers.power(ctx, prepared, false); err != nil {
		return err
	}
	return d.detachWork(ctx)
}

func (d *disk) detachWork(ctx context.Context) error {
	instance, tag, err := d.containers.GetInstance(prepared)
	if err != nil {
		return err
	}
	put := instance.Writable()
	delete(put.Devices, "work")
	op, err := d.containers.UpdateInstance(prepared, put, tag)
	return done(ctx, op, err)
}

func (d *disk) importBase(ctx context.Context) error {
	var metadata bytes.Buffer
	out := tar.NewWriter(&metadata)
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[architecture]
	text := fmt.Sprintf("architecture: %s\ncreation_date: 1767225600\nproperties: {description: a machine's operating system}\n", machine)
	if err := errors.Join(addContent(out, "metadata.yaml", []byte(text)), out.Close()); err != nil {
		return err
	}
	rootfs, err := os.Open(filepath.Join(d.bin, "node", "rootfs.tar"))
	if err != nil {
		return fmt.Errorf("opening the machines' operating system (`make tools-node` makes it): %w", err)
	}
	defer func() { _ = rootfs.Close() }()
	return d.containers.importImage(ctx, baseImage, &metadata, rootfs)
}

// installScript moves files and programs into place. What would change settings of the kernel, which all share, is
// removed; what waits for hardware that a container has not is masked.
const installScript = `
until systemctl is-system-running 2>/dev/null | grep -qE "running|degraded"; do sleep 0.2; done
tar -C / --no-same-owner -xf /mnt/programs.tar
systemctl daemon-reload
systemctl mask -q systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-modules-load.service systemd-binfmt.service getty.target console-getty.service
rm -f /usr/lib/sysctl.d/*.conf /etc/sysctl.d/99-sysctl.conf
systemctl enable -q containerd kubelet systemd-networkd systemd-resolved
systemctl start containerd
programs="sh cp mount ip iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore"
paths="/bin/sh $(for p in $programs; do command -v "$p"; done)"
libraries=$(for p in $paths; do ldd "$p" | grep -oE '/[^ ]+'; done | sort -u)
cd /
tar -chf /mnt/base-layer.tar $(printf '%s\n' $paths $libraries usr/lib/*/xtables | sed 's,^/,,')
`

// importScript gives the images to containerd, and makes the disk that of a machine that was never on.
const importScript = `
for i in /mnt/images/*.tar; do ctr -n k8s.io images import "$i" >/dev/null; done
systemctl stop containerd
rm -f /etc/cloud/cloud-init.disabled
: >/etc/machine-id
rm -rf /var/lib/cloud/* /var/log/journal /var/log/cloud-init* /run/containerd
`

// writePrograms writes the files of a node to an archive.
func (d *disk) writePrograms() (err error) {
	f, err := os.Create(filepath.Join(d.work, "programs.tar"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := tar.NewWriter(f)
	if err := d.addFiles(out); err != nil {
		return err
	}
	for _, name := range []string{"kubelet", "kubeadm"} {
		if err := addFile(out, "usr/bin/"+name, filepath.Join(d.bin, "node", name), 0o755); err != nil {
			return err
		}
	}
	if err := addFile(out, "usr/bin/kubectl", filepath.Join(d.bin, "k8s", "kubectl"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		if err := addFile(out, "usr/local/bin/"+name, filepath.Join(d.bin, "node", name), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"bridge", "host-local", "loopback", "portmap"} {
		if err := addFile(out, "opt/cni/bin/"+name, filepath.Join(d.bin, "node", "cni-"+name), 0o755); err != nil {
			return err
		}
	}
	// Until it is a machine's disk.
	if err := addContent(out, "etc/cloud/cloud-init.disabled", nil); err != nil {
		return err
	}
	return out.Close()
}

// addFiles adds the embedded files, with what depends on versions and on this machine.
func (d *disk) addFiles(out *tar.Writer) error {
	flags := ""
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		flags = "--fail-cgroupv1=false"
	}
	fill := strings.NewReplacer("@PAUSE@", d.images["pause"], "@CGROUPS@", flags)
	return fs.WalkDir(files, "files", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		text := []byte(fill.Replace(string(content)))
		mode := int64(0o644)
		if strings.Contains(path, "/sbin/") {
			mode = 0o755
		}
		if err := out.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "files/"), Mode: mode, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	})
}

// writeImages writes the images that nodes run, so that they need no registry.
func (d *disk) writeImages(ctx context.Context) error {
	dir := filepath.Join(d.work, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	proxy, err := d.script("kube-proxy.sh")
	if err != nil {
		return err
	}
	routes, err := d.script("pod-routes.sh")
	if err != nil {
		return err
	}
	pause := filepath.Join(d.work, "pause")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", pause, "./test/sandbox/realnode/pause")
	build.Dir, build.Env = filepath.Dir(d.bin), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building pause: %w: %s", err, out)
	}
	k8s, node := filepath.Join(d.bin, "k8s"), filepath.Join(d.bin, "node")
	for _, i := range []struct {
		reference, command string
		base               bool
		programs           map[string]string
	}{
		{d.images["kube-apiserver"], "kube-apiserver", false, map[string]string{"usr/local/bin/kube-apiserver": k8s + "/kube-apiserver"}},
		{d.images["kube-controller-manager"], "kube-controller-manager", false, map[string]string{"usr/local/bin/kube-controller-manager": k8s + "/kube-controller-manager"}},
		{d.images["kube-scheduler"], "kube-scheduler", false, map[string]string{"usr/local/bin/kube-scheduler": node + "/kube-scheduler"}},
		{d.images["kube-proxy"], "kube-proxy", true, map[string]string{"usr/local/bin/kube-proxy": proxy, "usr/local/lib/kube-proxy": node + "/kube-proxy"}},
		{d.images["etcd"], "etcd", false, map[string]string{"usr/local/bin/etcd": k8s + "/etcd"}},
		{d.images["pause"], "/pause", false, map[string]string{"pause": pause}},
		{d.images["coredns"], "/coredns", false, map[string]string{"coredns": node + "/coredns"}},
		{kubeVIP, "/kube-vip", false, map[string]string{"kube-vip": node + "/kube-vip"}},
		{podRoutes, "pod-routes", true, map[string]string{"usr/local/bin/pod-routes": routes, "usr/local/bin/kubectl": k8s + "/kubectl"}},
	} {
		layer := filepath.Join(d.work, "layer.tar")
		if err := writeLayer(layer, i.programs); err != nil {
			return err
		}
		layers := []string{layer}
		if i.base {
			layers = []string{filepath.Join(d.work, "base-layer.tar"), layer}
		}
		if err := writeImage(filepath.Join(dir, strings.NewReplacer("/", "_", ":", "_").Replace(i.reference)+".tar"), containerImage{i.reference, []string{i.command}, layers}); err != nil {
			return fmt.Errorf("writing the image %s: %w", i.reference, err)
		}
	}
	return nil
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

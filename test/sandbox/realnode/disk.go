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
	"path/filepath"
	"runtime"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

const (
	architecture = runtime.GOARCH
	// prepared is the container whose copies are machines' disks, and baseImage what it is made of.
	prepared, baseImage = "prepared", "base"
	// InitializerImage is the LXD initializer's, as its repository names it.
	InitializerImage = "capmaas.test/capmaas-lxd-initializer:real"
	// kubeVIP is what the flavors name; podRoutes belongs to the pod network of this package, and greeter to Greeters.
	kubeVIP, podRoutes, greeter = "ghcr.io/kube-vip/kube-vip:v0.9.1", "capmaas.test/pod-routes:v1", "capmaas.test/greeter:v1"
)

//go:embed all:files
var files embed.FS

//go:embed images
var scripts embed.FS

// disk makes the prepared container: Debian with each release of Kubernetes, whose images are in containerd.
type disk struct {
	containers containers
	// bin has the tools, and work is for files that containers may read.
	bin, work string
	// initializer is the program of the image of this name.
	initializer string
	// releases are those of newReleases.
	releases [2]release
}

func newDisk(ctx context.Context, c containers, options Options, work string) (*disk, error) {
	all, err := newReleases(ctx, options.Bin)
	return &disk{containers: c, bin: options.Bin, work: work, initializer: options.Initializer, releases: all}, err
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
	return lxd.Finish(ctx, op, err)
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
systemctl mask -q systemd-udevd.service systemd-udev-trigger.service systemd-udev-settle.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-modules-load.service systemd-binfmt.service getty.target console-getty.service
rm -f /usr/lib/sysctl.d/*.conf /etc/sysctl.d/99-sysctl.conf
systemctl enable -q containerd kubelet systemd-networkd systemd-resolved
systemctl start containerd
programs="sh cp mount sleep ip iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore"
paths="/bin/sh $(for p in $programs; do command -v "$p"; done)"
libraries=$(for p in $paths /usr/lib/*/xtables/*.so; do ldd "$p" | grep -oE '/[^ ]+'; done | sort -u)
cd /
tar -chf /mnt/base-layer.tar $(printf '%s\n' $paths $libraries usr/lib/*/xtables | sed 's,^/,,')
`

// importScript gives the images to containerd, and makes the disk that of a machine that was never on. Files are written to
// directories that are there.
const importScript = `
for i in /mnt/images/*.tar; do ctr -n k8s.io images import "$i" >/dev/null; done
systemctl stop containerd
rm -f /etc/cloud/cloud-init.disabled
: >/etc/machine-id
rm -rf /var/lib/cloud/* /var/log/journal /var/log/cloud-init* /run/containerd
mkdir -p /var/lib/cloud/seed/nocloud
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
	if err := d.addKubernetes(out); err != nil {
		return err
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

// addKubernetes adds each release's programs in a directory of its own, and the paths that lead to those of one.
func (d *disk) addKubernetes(out *tar.Writer) error {
	for _, name := range []string{"kubelet", "kubeadm"} {
		for _, r := range d.releases {
			if err := addFile(out, strings.TrimPrefix(releasesDir, "/")+"/"+r.version+"/"+name, r.program(name), 0o755); err != nil {
				return err
			}
		}
		link := &tar.Header{Name: "usr/bin/" + name, Typeflag: tar.TypeSymlink, Linkname: releaseLink + "/" + name}
		if err := out.WriteHeader(link); err != nil {
			return err
		}
	}
	return nil
}

// addFiles adds the embedded files, with what depends on versions and on this machine.
func (d *disk) addFiles(out *tar.Writer) error {
	flags := ""
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		flags = "--fail-cgroupv1=false"
	}
	fill := strings.NewReplacer("@PAUSE@", d.releases[0].images["pause"], "@CGROUPS@", flags, "@LXD@", lxdDir)
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

// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// checkHostPath returns nil once the path has the type that a hostPath volume requires. A directory to be created at a
// path that this node lacks is created for the pod alone.
func (p *pod) checkHostPath(volume string, source *corev1.HostPathVolumeSource) error {
	place, ok := p.kubelet.hostPlace(source.Path)
	kind := ptr.Deref(source.Type, corev1.HostPathUnset)
	if !ok && kind == corev1.HostPathDirectoryOrCreate {
		return os.MkdirAll(p.volumeDir(volume), 0o700)
	}
	if !ok {
		return fmt.Errorf("hostPath %s is not one of those that this node has", source.Path)
	}
	var is func(fs.FileMode) bool
	switch kind {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if err := os.Mkdir(place, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making the hostPath %s: %w", source.Path, err)
		}
		is = fs.FileMode.IsDir
	case corev1.HostPathDirectory:
		is = fs.FileMode.IsDir
	case corev1.HostPathFile:
		is = fs.FileMode.IsRegular
	case corev1.HostPathSocket:
		is = func(mode fs.FileMode) bool { return mode.Type() == fs.ModeSocket }
	default:
		return fmt.Errorf("hostPath %s: the type %s is not supported", source.Path, kind)
	}
	info, err := os.Stat(place)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && !is(info.Mode())) {
		return fmt.Errorf("hostPath type check failed: %s is not of type %s", source.Path, kind)
	}
	if err != nil {
		return fmt.Errorf("hostPath %s: %w", source.Path, err)
	}
	return nil
}

// hostPlace returns where a path of the node is on this machine: by the longest of the paths that it is in.
func (k *Kubelet) hostPlace(wanted string) (string, bool) {
	longest, found := "", ""
	for of, place := range k.options.HostPaths {
		of = path.Clean(of)
		if rest, ok := below(of, path.Clean(wanted)); ok && len(of) > len(longest) {
			longest, found = of, filepath.Join(place, rest)
		}
	}
	return found, longest != ""
}

// hostPlace returns the path of a mount of a hostPath volume, or false if the mount is of another kind of volume.
func (p *pod) hostPlace(mount corev1.VolumeMount) (string, bool) {
	for _, volume := range p.spec.Spec.Volumes {
		if volume.Name == mount.Name && volume.HostPath != nil {
			place, ok := p.kubelet.hostPlace(volume.HostPath.Path)
			return filepath.Join(place, mount.SubPath), ok
		}
	}
	return "", false
}

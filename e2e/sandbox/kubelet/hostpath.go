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

// hostPath answers where a hostPath volume is on this machine, once what its type asks for is there.
func (p *pod) hostPath(source *corev1.HostPathVolumeSource) (string, error) {
	place, ok := p.kubelet.hostPlace(source.Path)
	if !ok {
		return "", fmt.Errorf("hostPath %s is not one of those that this node has", source.Path)
	}
	var is func(fs.FileMode) bool
	kind := ptr.Deref(source.Type, corev1.HostPathUnset)
	switch kind {
	case corev1.HostPathUnset:
		return place, nil
	case corev1.HostPathDirectory:
		is = fs.FileMode.IsDir
	case corev1.HostPathFile:
		is = fs.FileMode.IsRegular
	case corev1.HostPathSocket:
		is = func(mode fs.FileMode) bool { return mode.Type() == fs.ModeSocket }
	default:
		return "", fmt.Errorf("hostPath %s: the type %s is not supported", source.Path, kind)
	}
	info, err := os.Stat(place)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && !is(info.Mode())) {
		return "", fmt.Errorf("hostPath type check failed: %s is not of type %s", source.Path, kind)
	}
	if err != nil {
		return "", fmt.Errorf("hostPath %s: %w", source.Path, err)
	}
	return place, nil
}

// hostPlace answers where a path of the node is on this machine: by the longest of the paths that it is in.
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

// hostPlace answers what a mount of a hostPath volume leads to. False: the mount is of another kind of volume.
func (p *pod) hostPlace(mount corev1.VolumeMount) (string, bool) {
	for _, volume := range p.spec.Spec.Volumes {
		if volume.Name == mount.Name && volume.HostPath != nil {
			place, ok := p.kubelet.hostPlace(volume.HostPath.Path)
			return filepath.Join(place, mount.SubPath), ok
		}
	}
	return "", false
}

// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// refreshVolumes writes the volumes, and mounts them into the containers' directories. What is up to date is skipped.
func (p *pod) refreshVolumes(ctx context.Context) error {
	p.volumes.Lock()
	defer p.volumes.Unlock()
	for _, volume := range p.spec.Spec.Volumes {
		dir := p.volumeDir(volume.Name)
		if volume.HostPath != nil {
			if err := p.checkHostPath(volume.Name, volume.HostPath); err != nil {
				return fmt.Errorf("looking for the volume %s: %w", volume.Name, err)
			}
			continue
		}
		if volume.EmptyDir != nil {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("making the volume %s: %w", volume.Name, err)
			}
			continue
		}
		files, err := p.volumeFiles(ctx, volume)
		if err != nil {
			return fmt.Errorf("reading the volume %s: %w", volume.Name, err)
		}
		if err := writeAtomically(dir, files); err != nil {
			return fmt.Errorf("writing the volume %s: %w", volume.Name, err)
		}
	}
	for _, c := range p.containers {
		for _, mount := range c.spec.VolumeMounts {
			if err := p.mount(c, mount); err != nil {
				return fmt.Errorf("mounting %s: %w", mount.Name, err)
			}
		}
	}
	return p.writeKubeconfig()
}

func (p *pod) volumeDir(name string) string { return filepath.Join(p.dir, "volumes", name) }

// mount links the volume to its place in the container's directory.
func (p *pod) mount(c *container, mount corev1.VolumeMount) error {
	at := filepath.Join(c.rootDir(), mount.MountPath)
	target, ok := p.hostPlace(mount)
	if !ok {
		target = filepath.Join(p.volumeDir(mount.Name), mount.SubPath)
	}
	if _, err := os.Lstat(at); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	return os.Symlink(target, at)
}

func (p *pod) volumeFiles(ctx context.Context, volume corev1.Volume) (map[string][]byte, error) {
	switch {
	case volume.Secret != nil:
		data, err := p.secret(volume.Secret.SecretName)
		return choose(data, err, volume.Secret.Items, ptr.Deref(volume.Secret.Optional, false))
	case volume.ConfigMap != nil:
		data, err := p.configMap(volume.ConfigMap.Name)
		return choose(data, err, volume.ConfigMap.Items, ptr.Deref(volume.ConfigMap.Optional, false))
	case volume.DownwardAPI != nil:
		return p.downward(volume.DownwardAPI.Items)
	case volume.Projected != nil:
		files := map[string][]byte{}
		for _, source := range volume.Projected.Sources {
			some, err := p.projection(ctx, source)
			if err != nil {
				return nil, err
			}
			maps.Copy(files, some)
		}
		return files, nil
	default:
		return nil, fmt.Errorf("this kind of volume is not supported")
	}
}

func (p *pod) projection(ctx context.Context, source corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case source.Secret != nil:
		data, err := p.secret(source.Secret.Name)
		return choose(data, err, source.Secret.Items, ptr.Deref(source.Secret.Optional, false))
	case source.ConfigMap != nil:
		data, err := p.configMap(source.ConfigMap.Name)
		return choose(data, err, source.ConfigMap.Items, ptr.Deref(source.ConfigMap.Optional, false))
	case source.DownwardAPI != nil:
		return p.downward(source.DownwardAPI.Items)
	case source.ServiceAccountToken != nil:
		value, err := p.serviceAccountToken(ctx, source.ServiceAccountToken)
		return map[string][]byte{source.ServiceAccountToken.Path: value}, err
	default:
		return nil, fmt.Errorf("this kind of projection is not supported")
	}
}

func (p *pod) downward(items []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, item := range items {
		if item.FieldRef == nil {
			return nil, fmt.Errorf("%s: only fieldRef is supported", item.Path)
		}
		value, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		files[item.Path] = []byte(value)
	}
	return files, nil
}

// choose returns the keys that a volume names; without names, all of them.
func choose(data map[string][]byte, err error, items []corev1.KeyToPath, optional bool) (map[string][]byte, error) {
	if err != nil {
		if optional && apierrors.IsNotFound(err) {
			return map[string][]byte{}, nil
		}
		return nil, err
	}
	if len(items) == 0 {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok && !optional {
			return nil, fmt.Errorf("there is no key %s", item.Key)
		}
		if ok {
			files[item.Path] = value
		}
	}
	return files, nil
}

func (p *pod) secret(name string) (map[string][]byte, error) {
	secret, err := p.kubelet.secrets.Secrets(p.spec.Namespace).Get(name)
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

func (p *pod) configMap(name string) (map[string][]byte, error) {
	configMap, err := p.kubelet.configMaps.ConfigMaps(p.spec.Namespace).Get(name)
	if err != nil {
		return nil, err
	}
	data := maps.Clone(configMap.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for name, value := range configMap.Data {
		data[name] = []byte(value)
	}
	return data, nil
}

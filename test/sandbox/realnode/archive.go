// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
)

// containerImage is what a container engine runs, made of layers, each the path of a tar archive.
type containerImage struct {
	reference  string
	entrypoint []string
	layers     []string
}

// write writes the image in the format of `docker save`, which `ctr images import` reads.
func (i containerImage) write(to io.Writer) error {
	out := tar.NewWriter(to)
	var names, digests []string
	for _, layer := range i.layers {
		digest, err := digestOf(layer)
		if err != nil {
			return err
		}
		name := digest + "/layer.tar"
		if !slices.Contains(names, name) {
			if err := addFile(out, name, layer, 0o644); err != nil {
				return err
			}
		}
		names, digests = append(names, name), append(digests, "sha256:"+digest)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": architecture, "os": "linux", "created": "2026-01-01T00:00:00Z",
		"config": map[string]any{
			"Entrypoint": i.entrypoint, "Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": digests},
	})
	if err != nil {
		return err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{i.reference}, "Layers": names}})
	if err != nil {
		return err
	}
	if err := addContent(out, configName, config); err != nil {
		return err
	}
	if err := addContent(out, "manifest.json", manifest); err != nil {
		return err
	}
	return out.Close()
}

func digestOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", file, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func addContent(out *tar.Writer, name string, content []byte) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

func addFile(out *tar.Writer, name, file string, mode int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// writeLayer writes a layer of programs: the path in the image, and the file.
func writeLayer(to string, programs map[string]string) (err error) {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() {
		if closing := f.Close(); err == nil {
			err = closing
		}
	}()
	out := tar.NewWriter(f)
	made := map[string]bool{".": true}
	for name, file := range programs {
		if err := addParents(out, made, path.Dir(name)); err != nil {
			return err
		}
		if err := addFile(out, name, file, 0o755); err != nil {
			return err
		}
	}
	return out.Close()
}

func addParents(out *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := addParents(out, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	return out.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}

// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// maxUserData bounds what compressed user data may become.
const maxUserData = 16 << 20

var errNotCloudConfig = errors.New("the user data is not a cloud-config")

// userData is what cloud-init makes of its input.
type userData struct {
	files    map[string]string
	commands []string
}

// metadata are the variables that MAAS's metadata gives to a template.
type metadata map[string]string

// metadataOf is what MAAS serves: the machine's system id as instance-id, and its hostname as local-hostname. Templates
// name them in three ways, with - and _ as the same letter.
func metadataOf(m simulator.MachineSnapshot) metadata {
	values := metadata{}
	for name, value := range map[string]string{"instance_id": m.SystemID, "local_hostname": m.Hostname, "region": "", "availability_zone": m.Zone} {
		values[name] = value
		values["v1."+name] = value
		values["ds.meta_data."+name] = value
	}
	values["ds.meta_data.public_hostname"] = m.FQDN
	return values
}

// parseUserData reads a cloud-config, which may be compressed, and a Jinja template.
func parseUserData(raw []byte, variables metadata) (*userData, error) {
	text, err := decompress(raw)
	if err != nil {
		return nil, err
	}
	first, rest, _ := strings.Cut(text, "\n")
	if isTemplate(first) {
		text = render(rest, variables)
		first, _, _ = strings.Cut(text, "\n")
	}
	if strings.TrimSpace(first) != "#cloud-config" {
		return nil, fmt.Errorf("%w: it begins with %q", errNotCloudConfig, first)
	}
	return parseCloudConfig([]byte(text))
}

func isTemplate(line string) bool {
	return strings.ReplaceAll(strings.ToLower(line), " ", "") == "##template:jinja"
}

func decompress(raw []byte) (string, error) {
	if !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		return string(raw), nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return "", fmt.Errorf("decompressing the user data: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(reader, maxUserData))
	if err != nil {
		return "", fmt.Errorf("decompressing the user data: %w", err)
	}
	return string(data), nil
}

var expression = regexp.MustCompile(`\{\{-?\s*([A-Za-z0-9_.-]+)\s*-?\}\}`)

// render replaces variables. One that is not there becomes what cloud-init makes of it.
func render(text string, variables metadata) string {
	return expression.ReplaceAllStringFunc(text, func(found string) string {
		name := strings.ReplaceAll(expression.FindStringSubmatch(found)[1], "-", "_")
		if value, ok := variables[name]; ok {
			return value
		}
		return "CI_MISSING_JINJA_VAR/" + name[strings.LastIndex(name, ".")+1:]
	})
}

type cloudConfig struct {
	WriteFiles []struct {
		Path     string `json:"path"`
		Content  string `json:"content"`
		Encoding string `json:"encoding"`
		Append   bool   `json:"append"`
	} `json:"write_files"`
	RunCmd []json.RawMessage `json:"runcmd"`
}

func parseCloudConfig(text []byte) (*userData, error) {
	config := cloudConfig{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("reading the cloud-config: %w", err)
	}
	data := &userData{files: map[string]string{}}
	for _, file := range config.WriteFiles {
		content, err := decode(file.Content, file.Encoding)
		if err != nil {
			return nil, fmt.Errorf("reading the file %s of the cloud-config: %w", file.Path, err)
		}
		if file.Append {
			content = data.files[file.Path] + content
		}
		data.files[file.Path] = content
	}
	for _, command := range config.RunCmd {
		line := ""
		if err := json.Unmarshal(command, &line); err != nil {
			words := []string{}
			if err := json.Unmarshal(command, &words); err != nil {
				return nil, fmt.Errorf("reading the commands of the cloud-config: %w", err)
			}
			line = strings.Join(words, " ")
		}
		data.commands = append(data.commands, line)
	}
	return data, nil
}

// decode undoes the encodings of write_files.
func decode(content, encoding string) (string, error) {
	switch encoding {
	case "", "text/plain":
		return content, nil
	case "b64", "base64":
		data, err := base64.StdEncoding.DecodeString(content)
		return string(data), err
	case "gz", "gzip":
		return decompress([]byte(content))
	case "gz+b64", "gz+base64", "gzip+b64", "gzip+base64":
		data, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			return "", err
		}
		return decompress(data)
	default:
		return "", fmt.Errorf("the encoding %q is not known", encoding)
	}
}

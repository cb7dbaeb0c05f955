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

var (
	errNotCloudConfig = errors.New("the user data is not a cloud-config")
	// errDropped is for a template that Jinja can't read: cloud-init logs a warning, and goes on without any user data
	// (render_jinja_payload_from_file in cloudinit/handlers/jinja_template.py).
	errDropped = errors.New("cloud-init drops the user data")
)

// userData is what cloud-init makes of its input.
type userData struct {
	files    map[string]string
	commands []string
}

// metadata are the variables that MAAS's metadata gives to a template.
type metadata map[string]string

// metadataOf is what MAAS serves: the machine's system id as instance-id, and its hostname as local-hostname. Templates
// name them in three ways, with _ for each -, which is a minus to Jinja.
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
		if text, err = render(rest, variables); err != nil {
			return nil, err
		}
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

var (
	// delimiter begins what Jinja does not copy: an expression, a statement, or a comment, as ${#array[@]} of bash does.
	delimiter = regexp.MustCompile(`\{\{|\{%|\{#`)
	// ends are what ends them.
	ends = map[string]string{"{{": "}}", "{%": "%}", "{#": "#}"}
	// variable is the only expression that is played.
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
)

// render replaces variables as Jinja does, with the undefined ones of cloud-init (cloudinit/templater.py).
func render(text string, variables metadata) (string, error) {
	var out strings.Builder
	for {
		at := delimiter.FindStringIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String(), nil
		}
		begin := text[at[0]:at[1]]
		inner, rest, ended := strings.Cut(text[at[1]:], ends[begin])
		if !ended {
			return "", fmt.Errorf("%w: %s without %s", errDropped, begin, ends[begin])
		}
		out.WriteString(text[:at[0]])
		text = rest
		switch begin {
		case "{%":
			return "", fmt.Errorf("statements of Jinja are not played: %s", inner)
		case "{{":
			value, err := variables.value(strings.TrimSpace(strings.Trim(inner, "-")))
			if err != nil {
				return "", err
			}
			out.WriteString(value)
		}
	}
}

// value returns a variable's. One that is not there becomes a text of cloud-init's, unless more is asked of it.
func (v metadata) value(name string) (string, error) {
	if !variable.MatchString(name) {
		return "", fmt.Errorf("%w: {{ %s }} is no variable", errDropped, name)
	}
	if value, known := v[name]; known {
		return value, nil
	}
	parent, last := "", name
	if at := strings.LastIndex(name, "."); at >= 0 {
		parent, last = name[:at+1], name[at+1:]
	}
	for known := range v {
		if strings.HasPrefix(known, parent) { // Also without one.
			return "CI_MISSING_JINJA_VAR/" + last, nil
		}
	}
	return "", fmt.Errorf("%w: {{ %s }} is below a variable that is not there", errDropped, name)
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

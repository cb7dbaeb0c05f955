// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

const changelog = "CHANGELOG.md"

// notes returns the release notes: what CHANGELOG.md tells people to do, how to install, and all commits by their area.
func (r *release) notes(ctx context.Context, pushed artifacts) (string, error) {
	text, err := os.ReadFile(changelog)
	if err != nil {
		return "", err
	}
	previous, err := previousTag(ctx, ".", r.version)
	if err != nil {
		return "", err
	}
	var areas []area
	if previous != "" {
		subjects, err := git(ctx, ".", "log", "--no-merges", "--reverse", "--format=%s", previous+"..HEAD")
		if err != nil {
			return "", err
		}
		areas = byArea(strings.Split(strings.TrimSpace(subjects), "\n"))
	}
	var out bytes.Buffer
	err = notesTemplate.Execute(&out, map[string]any{
		"Version": r.version, "ChartVersion": r.chartVersion(), "Changes": absolute(section(string(text), r.version), r.version), "Signed": r.signer.program != "",
		"Chart": pushed.chart, "Artifacts": pushed.all(), "Previous": previous, "Areas": areas, "Homepage": homepage,
	})
	return out.String(), err
}

var notesTemplate = template.Must(template.New("notes").Parse("{{with .Changes}}{{.}}\n\n{{end}}" + `## Install

` + "```sh" + `
helm install capmaas oci://{{.Chart.Repository}} --version {{.ChartVersion}} --namespace capmaas-system --create-namespace
# or
clusterctl init --infrastructure maas:{{.Version}}
` + "```" + `

[How to verify what you download]({{.Homepage}}/blob/{{.Version}}/docs/making-a-release.md#verify-a-release){{if not .Signed}}; this release is not signed{{end}}.

In the registry:
{{range .Artifacts}}
- ` + "`{{.}}`" + `{{end}}
{{if .Areas}}
## Commits since {{.Previous}}
{{range .Areas}}
{{.Name}}:
{{range .Subjects}}
- {{.}}{{end}}
{{end}}{{end}}`))

// area is a part of the project, with what commits do to it.
type area struct {
	Name     string
	Subjects []string
}

// byArea orders the subjects of commits, `area: what it does`, by their areas.
func byArea(subjects []string) (areas []area) {
	found := map[string][]string{}
	for _, subject := range subjects {
		name, what, ok := strings.Cut(subject, ": ")
		if !ok || strings.Contains(name, " ") {
			name, what = "other", subject
		}
		found[name] = append(found[name], what)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		areas = append(areas, area{name, found[name]})
	}
	return areas
}

var heading = regexp.MustCompile(`(?m)^## (\S+).*$`)

// section returns what the changelog has under the heading of a version or, if it has none, under Unreleased.
func section(text, version string) string {
	sections := map[string]string{}
	found := heading.FindAllStringSubmatchIndex(text, -1)
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		sections[text[at[2]:at[3]]] = strings.TrimSpace(text[at[1]:end])
	}
	if changes, ok := sections[version]; ok {
		return changes
	}
	return sections["Unreleased"]
}

// absolute makes the changelog's links lead to the repository from elsewhere.
func absolute(text, version string) string {
	return strings.ReplaceAll(text, "](docs/", "]("+homepage+"/blob/"+version+"/docs/")
}

// previousTag returns the newest release before this one, or nothing. A release has all that its candidates had.
func previousTag(ctx context.Context, dir, version string) (string, error) {
	tags, err := git(ctx, dir, "-c", "versionsort.suffix=-", "tag", "--merged", "HEAD", "--list", "v[0-9]*", "--sort=-version:refname")
	if err != nil {
		return "", err
	}
	for tag := range strings.FieldsSeq(tags) {
		if tag != version && (isCandidate(version) || !isCandidate(tag)) {
			return tag, nil
		}
	}
	return "", nil
}

func isCandidate(version string) bool { return strings.Contains(version, "-") }

// commitTime returns when the release's commit was made, or what SOURCE_DATE_EPOCH says instead.
func commitTime(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		var err error
		if text, err = git(ctx, ".", "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, err
		}
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Unix(seconds, 0), err
}

func git(ctx context.Context, dir string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", arguments...)
	command.Dir = dir
	out, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %w: %s", arguments[0], err, exit.Stderr)
	}
	return string(out), err
}

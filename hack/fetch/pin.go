// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

const pinsHeader = `# SPDX-License-Identifier: Apache-2.0
#
# Checksums of official releases, as their projects publish them: TOOL VERSION OS/ARCH SHA256 (of what is downloaded).
# hack/tools/build.sh downloads what is here in the version of go.mod, and builds the rest. Written by ` + "`make tools-pins`" + `.
`

// pin writes the file of what the projects publish about the tools and versions that it reads.
func (f *fetcher) pin(ctx context.Context, versions io.Reader, file string) error {
	text, err := io.ReadAll(versions)
	if err != nil {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		tool, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, r, ok := releaseOf(tool)
		if !ok {
			continue
		}
		for _, on := range r.platforms() {
			p := pinned{tool: tool, version: version, platform: on}
			url, _, err := place(p)
			if err != nil {
				return err
			}
			if p.sum, err = f.published(ctx, url); err != nil {
				return err
			}
			lines = append(lines, p.String())
		}
	}
	slices.Sort(lines)
	return os.WriteFile(file, []byte(pinsHeader+strings.Join(lines, "\n")+"\n"), 0o644)
}

var (
	sumForm     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	githubAsset = regexp.MustCompile(`^https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/]+)$`)
)

// published returns the checksum that a project publishes of what is at a URL.
func (f *fetcher) published(ctx context.Context, url string) (sum string, err error) {
	switch asset := githubAsset.FindStringSubmatch(url); {
	case asset != nil:
		sum, err = f.githubDigest(ctx, asset[1], asset[2], asset[3])
	case strings.HasPrefix(url, "https://get.helm.sh/"):
		sum, err = f.firstWord(ctx, url+".sha256sum")
	default:
		sum, err = f.firstWord(ctx, url+".sha256")
	}
	if err == nil && !sumForm.MatchString(sum) {
		err = errors.New("no checksum is published")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", url, err)
	}
	return sum, nil
}

func (f *fetcher) firstWord(ctx context.Context, url string) (string, error) {
	var text bytes.Buffer
	err := f.get(ctx, url, &text)
	word, _, _ := strings.Cut(strings.TrimSpace(text.String()), " ")
	return word, err
}

// githubDigest returns the checksum that GitHub made of a release's file when it was uploaded.
func (f *fetcher) githubDigest(ctx context.Context, repository, tag, name string) (string, error) {
	var text bytes.Buffer
	if err := f.get(ctx, "https://api.github.com/repos/"+repository+"/releases/tags/"+tag, &text); err != nil {
		return "", err
	}
	var answer struct {
		Assets []struct{ Name, Digest string }
	}
	if err := json.Unmarshal(text.Bytes(), &answer); err != nil {
		return "", err
	}
	for _, asset := range answer.Assets {
		if asset.Name == name {
			return strings.TrimPrefix(asset.Digest, "sha256:"), nil
		}
	}
	return "", nil
}

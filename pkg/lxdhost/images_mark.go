// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"strings"
)

// Mark proves which images a management cluster has brought into a project of an LXD. It is of no worth anywhere else:
// LXD copies the properties of an image with it, and what a person copies is the person's.
type Mark struct {
	management, project string
	server              []byte
}

// Mark returns the mark of a management cluster, which must have an id; the zero value proves nothing.
func (o Options) Mark(management string) Mark {
	block, _ := pem.Decode(o.ServerCertificate)
	if management == "" || block == nil {
		return Mark{}
	}
	return Mark{management: management, project: o.Project, server: block.Bytes}
}

// Of returns the mark of an image that is brought under an alias; "" if the mark proves nothing.
func (m Mark) Of(fingerprint, alias string) string {
	if m.management == "" {
		return ""
	}
	parts, _ := json.Marshal([]any{m.management, m.project, m.server, fingerprint, alias}) // They can be marshalled.
	sum := sha256.Sum256(parts)
	return hex.EncodeToString(sum[:]) + " " + alias
}

// Alias returns under which alias an image was brought; false if it was not, or has another name, too, which somebody
// gave it.
func (m Mark) Alias(image *Image) (string, bool) {
	_, alias, _ := strings.Cut(image.Brought, " ")
	if image.Brought == "" || image.Brought != m.Of(image.Fingerprint, alias) {
		return "", false
	}
	for _, name := range image.Aliases {
		if name != alias {
			return "", false
		}
	}
	return alias, true
}

func (m Mark) proves(image *Image) bool {
	_, is := m.Alias(image)
	return is
}

// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxLabel is the longest DNS label.
const maxLabel = 63

// Hostname makes a name that is unique over all of MAAS out of an object's name and the owner id of its cluster. It is a
// DNS label, and always the same for the same input, so that it finds again what an earlier try created.
func Hostname(name, ownerID string) string {
	label := strings.ToLower(strings.ReplaceAll(name, ".", "-"))
	hashed := ownerID
	if label != name || len(label)+1+8 > maxLabel {
		// The label does not hold the whole name, so the hash must.
		hashed += "/" + name
	}
	sum := sha256.Sum256([]byte(hashed))
	suffix := "-" + hex.EncodeToString(sum[:4])
	label = label[:min(len(label), maxLabel-len(suffix))]
	return strings.TrimRight(label, "-") + suffix
}

// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

const (
	// OwnerIDLength is how long the owner id of a cluster is. It makes collisions within one MAAS improbable.
	OwnerIDLength = 12
	// maxLabel is the longest DNS label.
	maxLabel = 63
	// hashLength is how much of a hash names end in: 65 bits, so that no one finds an owner id with the hash of another one.
	hashLength = 13
)

// What a name is for. Names for different uses never share a hash, though object and cluster are the same.
const (
	forHostname = "hostname"
	forEndpoint = "endpoint"
	// inFull follows the use where the hash stands for the object's name, too.
	inFull = ", in full"
)

// ValidOwnerID reports whether an id can be the owner id of a cluster: 12 lower-case letters and digits.
func ValidOwnerID(id string) bool {
	return len(id) == OwnerIDLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Hostname makes a name that is unique over all of MAAS out of an object's name and the owner id of its cluster. It is a
// DNS label, and always the same for the same input, so that it finds again what an earlier try created. It begins with a letter: MAAS makes up
// another name for a VM whose name does not (create_machine in maasserver/models/bmc.py).
func Hostname(name, ownerID string) string { return label(forHostname, name, ownerID) }

// HostnameSuffix is what the hostnames of a cluster end in, unless an object's name is too long for a label, has dots, or begins with a digit.
func HostnameSuffix(ownerID string) string { return suffix(forHostname, ownerID) }

// EndpointLabel is the DNS label of a cluster's API endpoint. It is never a Hostname: MAAS adds the addresses of a machine to the
// DNS record of the same name.
func EndpointLabel(name, ownerID string) string { return label(forEndpoint, name, ownerID) }

// EndpointSuffix is what the EndpointLabel of a cluster ends in, as HostnameSuffix.
func EndpointSuffix(ownerID string) string { return suffix(forEndpoint, ownerID) }

func label(use, name, ownerID string) string {
	text, end := strings.ToLower(strings.ReplaceAll(name, ".", "-")), suffix(use, ownerID)
	if use == forHostname && strings.IndexAny(text, "0123456789") == 0 {
		text = "m-" + text
	}
	if text == name && len(text)+len(end) <= maxLabel && !strings.HasSuffix(text, "-") {
		return text + end
	}
	// The label does not hold the whole name, so the hash must. No name of an object has a NUL.
	end = suffix(use+inFull, ownerID+"\x00"+name)
	return strings.TrimRight(text[:min(len(text), maxLabel-len(end))], "-") + end
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// suffix hashes a text for a use.
func suffix(use, text string) string {
	sum := sha256.Sum256([]byte(use + "\x00" + text))
	return "-" + lowerBase32.EncodeToString(sum[:])[:hashLength]
}

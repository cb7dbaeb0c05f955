// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

const (
	// OwnerIDLength is the length of a cluster's owner id. It makes collisions within one MAAS improbable.
	OwnerIDLength = 12
	// maxLabel is the longest DNS label.
	maxLabel = 63
	// hashLength is the length of the hash at the end of names: 65 bits, so that nobody can find an owner id with the
	// hash of another one.
	hashLength = 13
)

// Uses of names. Names for different uses never share a hash, even for the same object and cluster.
const (
	forHostname = "hostname"
	forEndpoint = "endpoint"
	// inFull follows the use if the hash also stands for the object's name.
	inFull = ", in full"
)

// ValidOwnerID reports whether id has the form of an owner id: 12 lower-case letters and digits.
func ValidOwnerID(id string) bool {
	return len(id) == OwnerIDLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Hostname makes a name that is unique in MAAS from an object's name and the owner id of its cluster. It is a DNS
// label, and always the same for the same input, so that a retry finds what an earlier try created. It begins with a
// letter: MAAS makes up another name for a VM whose name does not (create_machine in maasserver/models/bmc.py).
func Hostname(name, ownerID string) string { return label(forHostname, name, ownerID) }

// HostnameSuffix is the end of a cluster's hostnames, unless an object's name is too long for a label, has dots, or
// begins with a digit.
func HostnameSuffix(ownerID string) string { return suffix(forHostname, ownerID) }

// EndpointLabel returns the DNS label of a cluster's API endpoint. It is never a Hostname: MAAS adds the addresses of a
// machine to the DNS record of the same name.
func EndpointLabel(name, ownerID string) string { return label(forEndpoint, name, ownerID) }

// EndpointSuffix is to EndpointLabel what HostnameSuffix is to Hostname.
func EndpointSuffix(ownerID string) string { return suffix(forEndpoint, ownerID) }

func label(use, name, ownerID string) string {
	text, end := strings.ToLower(strings.ReplaceAll(name, ".", "-")), suffix(use, ownerID)
	if use == forHostname && strings.IndexAny(text, "0123456789") == 0 {
		text = "m-" + text
	}
	if text == name && len(text)+len(end) <= maxLabel && !strings.HasSuffix(text, "-") {
		return text + end
	}
	// The label does not hold the whole name, so the hash must include it. Names of objects have no NUL.
	end = suffix(use+inFull, ownerID+"\x00"+name)
	return strings.TrimRight(text[:min(len(text), maxLabel-len(end))], "-") + end
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// suffix hashes a text for a use.
func suffix(use, text string) string {
	sum := sha256.Sum256([]byte(use + "\x00" + text))
	return "-" + lowerBase32.EncodeToString(sum[:])[:hashLength]
}

// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
)

const (
	// OwnerIDLength is the length of a cluster's owner id. It makes collisions within one MAAS improbable.
	OwnerIDLength = 12
	// maxLabel is the longest DNS label.
	maxLabel = 63
	// maxHostname is the longest hostname. LXD 5.0 starts no VM if the path of its longest unix socket,
	// /var/snap/lxd/common/lxd/logs/<project>_<hostname>/virtio-fs.config.sock, has more than 108 bytes
	// (https://github.com/canonical/lxd/issues/12539). 7 of them are for the project.
	maxHostname = 48
	// ownerHash is the length of the hash at the end of names: 65 bits, so that nobody can find an owner id with the
	// hash of another one.
	ownerHash = 13
	// nameHash is the length of the hash of an object's name. It distinguishes objects of one cluster.
	nameHash = 8
)

// Uses of names. Names for different uses never share a hash, even for the same object and cluster.
const (
	forHostname = "hostname"
	forEndpoint = "endpoint"
	// shortened follows the use in names that do not hold the whole name of their object.
	shortened = ", shortened"
)

// ValidOwnerID reports whether id has the form of an owner id: 12 lower-case letters and digits.
func ValidOwnerID(id string) bool {
	return len(id) == OwnerIDLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Hostname makes a name that is unique in MAAS from an object's name and the owner id of its cluster. It is a DNS
// label, and always the same for the same input, so that a retry finds what an earlier try created. It begins with a
// letter: MAAS makes up another name for a VM whose name does not (create_machine in maasserver/models/bmc.py).
func Hostname(name, ownerID string) string { return label(forHostname, name, ownerID, maxHostname) }

// HostnameSuffixes are the ends of a cluster's hostnames: of those that hold the whole name of their object, and of
// those that do not, because it is too long, has dots, or begins with a digit.
func HostnameSuffixes(ownerID string) []string { return suffixes(forHostname, ownerID) }

// EndpointLabel returns the DNS label of a cluster's API endpoint. It is never a Hostname: MAAS adds the addresses of a
// machine to the DNS record of the same name.
func EndpointLabel(name, ownerID string) string { return label(forEndpoint, name, ownerID, maxLabel) }

// IsEndpointLabel reports whether a label ends like those of a cluster's API endpoints.
func IsEndpointLabel(label, ownerID string) bool { return endsLike(forEndpoint, label, ownerID) }

func label(use, name, ownerID string, longest int) string {
	text, end := strings.ToLower(strings.ReplaceAll(name, ".", "-")), suffix(use, ownerID)
	if use == forHostname && strings.IndexAny(text, "0123456789") == 0 {
		text = "m-" + text
	}
	if text == name && len(text)+len(end) <= longest && !strings.HasSuffix(text, "-") {
		return text + end
	}
	end = "-" + hash(use, name)[:nameHash] + suffix(use+shortened, ownerID)
	return strings.TrimRight(text[:min(len(text), longest-len(end))], "-") + end
}

func suffixes(use, ownerID string) []string {
	return []string{suffix(use, ownerID), suffix(use+shortened, ownerID)}
}

func endsLike(use, name, ownerID string) bool {
	return slices.ContainsFunc(suffixes(use, ownerID), func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

func suffix(use, ownerID string) string { return "-" + hash(use, ownerID)[:ownerHash] }

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// hash returns the hash of a text for a use.
func hash(use, text string) string {
	sum := sha256.Sum256([]byte(use + "\x00" + text))
	return lowerBase32.EncodeToString(sum[:])
}

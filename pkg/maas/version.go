// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Version is the version of a MAAS. The zero Version is an unknown one, older than all others. What a MAAS can do, ask
// it: a version is for what can't be asked, and for people.
type Version struct{ Major, Minor, Point int }

// The provider supports all versions from Oldest to the point releases of Newest.
var (
	Oldest = Version{3, 3, 0}
	Newest = Version{4, 0, 0}
)

// ParseVersion reads a version as MAAS writes it: it returns 3.6.5 for 3.6.5, and 3.7.0 for 3.7 and 3.7.0~beta1.
func ParseVersion(text string) (Version, error) {
	parsed, err := version.ParseGeneric(text)
	if err != nil {
		return Version{}, fmt.Errorf("%q is not a version of MAAS", text)
	}
	v := Version{int(parsed.Major()), int(parsed.Minor()), int(parsed.Patch())}
	if v.Major == 0 || !strings.HasPrefix(text, v.Series()) {
		return Version{}, fmt.Errorf("%q is not a version of MAAS", text)
	}
	return v, nil
}

// UnmarshalText is ParseVersion: a response with anything else is not MAAS's.
func (v *Version) UnmarshalText(text []byte) (err error) {
	*v, err = ParseVersion(string(text))
	return err
}

// Known reports whether the version is known.
func (v Version) Known() bool { return v != Version{} }

// Compare returns a negative number if v is older than the other, a positive one if it is newer, and 0 if they are the
// same.
func (v Version) Compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Point, other.Point))
}

// AtLeast reports whether v is this version or a newer one.
func (v Version) AtLeast(major, minor, point int) bool {
	return v.Compare(Version{major, minor, point}) >= 0
}

// HasEntitlements reports whether users are in groups, which have entitlements; before, they are administrators or not.
func (v Version) HasEntitlements() bool { return v.AtLeast(3, 8, 0) }

// Series returns the version without its point release: 3.6.
func (v Version) Series() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// String returns the version as MAAS writes it: 3.6.5.
func (v Version) String() string {
	if !v.Known() {
		return "unknown"
	}
	return fmt.Sprintf("%s.%d", v.Series(), v.Point)
}

// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Versions are the series that a region can be of, the oldest first, each with its latest point release.
var Versions = []maas.Version{
	{Major: 3, Minor: 3, Point: 11}, {Major: 3, Minor: 4, Point: 10}, {Major: 3, Minor: 5, Point: 12}, DefaultVersion,
	{Major: 3, Minor: 7, Point: 3}, {Major: 3, Minor: 8}, {Major: 4},
}

// DefaultVersion is what a region is if nothing else is asked for.
var DefaultVersion = maas.Version{Major: 3, Minor: 6, Point: 5}

// UnknownVersionError is for a version that the simulator can't be.
type UnknownVersionError struct{ Version string }

// Error lists the versions that there are.
func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("there is no simulated MAAS %q: there are %s", e.Version, Series())
}

// Series lists the series of Versions.
func Series() string {
	var series []string
	for _, version := range Versions {
		series = append(series, version.Series())
	}
	return strings.Join(series, ", ")
}

// ParseVersion returns a series' latest point release (3.6), or the point release itself (3.6.2), or for "" DefaultVersion.
// Others are an *UnknownVersionError.
func ParseVersion(text string) (maas.Version, error) {
	if text == "" {
		return DefaultVersion, nil
	}
	version, err := maas.ParseVersion(text)
	at := slices.IndexFunc(Versions, func(v maas.Version) bool { return v.Series() == version.Series() })
	switch {
	case err != nil || at < 0 || text != version.String() && text != version.Series():
		return maas.Version{}, &UnknownVersionError{text}
	case text == version.Series():
		return Versions[at], nil
	}
	return version, nil
}

// hasVMHosts reports whether this MAAS manages VM hosts. Its branch 3.8 does; what follows as 4.0 does not.
func (s *Simulator) hasVMHosts() bool { return !s.version.AtLeast(4, 0, 0) }

// hasEntitlements reports whether this MAAS has groups of users with entitlements.
func (s *Simulator) hasEntitlements() bool { return s.version.AtLeast(3, 8, 0) }

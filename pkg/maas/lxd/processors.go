// SPDX-License-Identifier: Apache-2.0

package lxd

import "strings"

// LinuxArchitecture returns Linux's name of an architecture, x86_64 for example, from MAAS's; what has none stays as it
// is.
func LinuxArchitecture(name string) string {
	processor, _, _ := strings.Cut(name, "/")
	for _, linux := range []string{"x86_64", "aarch64", "ppc64le", "s390x"} {
		if architecture(linux) == processor+"/generic" {
			return linux
		}
	}
	return processor
}

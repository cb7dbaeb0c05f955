// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// rightsTable returns the table of what the key of a MAAS user must be allowed.
func rightsTable(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("| Use | | Up to 3.7: key of | 3.8 and newer: in the pool | In all of MAAS |\n|---|---|---|---|---|\n")
	for _, use := range rights.Uses {
		user := "any user"
		if use.Administrator {
			user = "an administrator"
		}
		var inPool, inMAAS []string
		for _, need := range use.Needs {
			to := &inMAAS
			if need.InPool {
				to = &inPool
			}
			*to = append(*to, "`"+string(need.Entitlement)+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
			use.Name, use.What, user, strings.Join(inPool, ", "), strings.Join(inMAAS, ", "))
	}
	return b.Bytes(), nil
}

// SPDX-License-Identifier: Apache-2.0

// Command roots writes Mozilla's CA roots, of the version that this module pins, as PEM: the roots that the images
// trust.
package main

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "writing the CA roots:", err)
		os.Exit(1)
	}
}

func write() error {
	out := bufio.NewWriter(os.Stdout)
	for root := range bundle.Roots() {
		// A root that is trusted only for certificates from before some day: PEM can't express that.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return err
		}
	}
	return out.Flush()
}

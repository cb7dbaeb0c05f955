// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
)

func versionCommand() command {
	return command{
		use: "version", short: "Print the version of this program",
		example: "version\nversion -o json",
		find: func(context.Context, options, surroundings) result {
			return versionReport{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		},
	}
}

// versionReport says which program this is. The JSON names are part of the output's contract.
type versionReport struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func (versionReport) good() bool { return true }

func (r versionReport) text(w io.Writer) error {
	_, err := fmt.Fprintf(w, "capmaasctl %s (%s, %s)\n", r.Version, r.GoVersion, r.Platform)
	return err
}

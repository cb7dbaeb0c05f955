// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/capmaas/cluster-api-provider-maas/pkg/convert"
)

// standard is the name of standard input and standard output where a file can be given.
const standard = "-"

func convertCommand() command {
	return command{
		use: "convert", short: "Turn manifests for Spectro Cloud's provider into this one's",
		long: `It converts MaasClusters, MaasMachines and MaasMachineTemplates. All else in the files stays
byte for byte. What has no equivalent is reported on standard error; then nothing is written
without --allow-loss.`,
		example: `convert -f my-cluster.yaml --output-file my-cluster-new.yaml
convert <my-cluster.yaml >my-cluster-new.yaml`,
		page: "migrating.md",
		flags: func(o *options, fs *pflag.FlagSet) {
			o.addManifestsFlag(fs, standard)
			fs.StringVar(&o.converted, "output-file", standard,
				"File to write; - is the standard output. It may be one that is read.")
			fs.BoolVar(&o.allowLoss, "allow-loss", false, "Leave out what has no equivalent, and write the rest.")
		},
		complete: (*options).completeConvert,
		act:      convertManifests,
	}
}

func (o *options) completeConvert(*pflag.FlagSet) {
	for i, name := range o.manifests {
		switch {
		case name == "":
			o.wrong("--filename: it is empty: name a file, or -")
		case slices.Contains(o.manifests[:i], name):
			o.wrong("--filename: %q is given twice", name)
		}
	}
	if o.converted == "" {
		o.wrong("--output-file: it is empty: name a file, or leave it out")
	}
}

// convertManifests writes all or nothing: the output is meant for kubectl apply.
func convertManifests(_ context.Context, o options, s surroundings) int {
	var output bytes.Buffer
	count := map[convert.Severity]int{}
	for _, name := range o.manifests {
		input, err := readManifest(name, s.in)
		if err != nil {
			fmt.Fprintf(s.err, "reading %s: %v\n", name, err)
			return exitFailed
		}
		if len(bytes.TrimSpace(input)) == 0 {
			fmt.Fprintf(s.err, "Nothing was written: %s is empty: give the manifests of a cluster.\n", readable(name))
			return exitFailed
		}
		result := convert.Convert(input)
		for _, finding := range result.Findings {
			fmt.Fprintf(s.err, "%s:%d: %s\n", name, finding.Line, finding)
			count[finding.Severity]++
		}
		join(&output, result.Output)
	}
	if count[convert.Problem] > 0 {
		fmt.Fprintf(s.err, "Nothing was written: there are %d error(s).\n", count[convert.Problem])
		return exitFailed
	}
	if count[convert.Loss] > 0 && !o.allowLoss {
		fmt.Fprintf(s.err, "Nothing was written: %d thing(s) would be lost, or have to be changed by hand. Change them, or "+
			"add --allow-loss.\n", count[convert.Loss])
		return exitFailed
	}
	if err := writeManifest(o.converted, output.Bytes(), s.out); err != nil {
		fmt.Fprintf(s.err, "writing %s: %v\n", o.converted, err)
		return exitFailed
	}
	return exitOK
}

// join adds documents to those before, with a line --- between them.
func join(output *bytes.Buffer, documents []byte) {
	if before := output.Bytes(); len(before) > 0 && len(documents) > 0 {
		if before[len(before)-1] != '\n' {
			output.WriteByte('\n')
		}
		if !bytes.HasPrefix(documents, []byte("---")) {
			output.WriteString("---\n")
		}
	}
	output.Write(documents)
}

// readable is how a person calls what is read.
func readable(name string) string {
	if name == standard {
		return "the standard input"
	}
	return name
}

func readManifest(name string, in io.Reader) ([]byte, error) {
	if name == standard {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}

func writeManifest(name string, content []byte, out io.Writer) error {
	if name == standard {
		_, err := out.Write(content)
		return err
	}
	return os.WriteFile(name, content, 0o600) // It may contain Secrets.
}

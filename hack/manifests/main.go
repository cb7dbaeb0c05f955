// SPDX-License-Identifier: Apache-2.0

// Command manifests writes a clusterctl repository: the chart rendered as infrastructure-components.yaml, the cluster
// templates, the ClusterClasses and metadata.yaml, below OUT/infrastructure-maas/VERSION; and beside them
// lxd-initializer-daemonset.yaml, which clusterctl has no part in.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	release := Release{}
	out := flag.String("out", "out", "directory that the repository is written to")
	flag.StringVar(&release.Source, "source", ".", "directory of this project's sources")
	flag.StringVar(&release.Version, "version", "", "version of the release, for example v0.1.0")
	flag.StringVar(&release.Image, "image", "", "reference of the manager's image (default: the chart's repository, tagged with the version)")
	flag.StringVar(&release.InitializerImage, "initializer-image", "",
		"reference of the LXD initializer's image (default: the chart's repository, tagged with the version; ${REGISTRY} and ${TAG} in lxd-initializer-daemonset.yaml)")
	flag.Parse()
	if err := run(release, *out); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(release Release, out string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	dir, err := release.Write(out)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

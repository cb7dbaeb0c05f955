// SPDX-License-Identifier: Apache-2.0

// Command manifests writes a clusterctl repository: the chart rendered as infrastructure-components.yaml, the cluster
// templates, the ClusterClasses and metadata.yaml, in OUT/infrastructure-maas/VERSION; and beside them, in the same
// directory, lxd-initializer-daemonset.yaml, which clusterctl does not use.
package main

import (
	"flag"
	"fmt"
	"os"

	"helm.sh/helm/v3/pkg/chartutil"
)

func main() {
	release := Release{}
	out := flag.String("out", "out", "directory that the repository is written to")
	flag.StringVar(&release.Source, "source", ".", "directory of this project's sources")
	flag.StringVar(&release.Version, "version", "", "version of the release, for example v0.1.0")
	flag.StringVar(&release.Image, "image", "", "reference of the manager's image, whatever --values say (default: the chart's repository, tagged with the version)")
	flag.StringVar(&release.InitializerImage, "initializer-image", "",
		"reference of the LXD initializer's image, likewise (default: the chart's repository, tagged with the version; ${REGISTRY} and ${TAG} in lxd-initializer-daemonset.yaml)")
	values := flag.String("values", "", "file with values of the chart, for a release that fits a site: flags of the manager, affinities, a proxy, credentials in place of ${MAAS_ENDPOINT} and ${MAAS_API_KEY}")
	flag.Parse()
	if err := run(release, *out, *values); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(release Release, out, values string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if values != "" {
		var err error
		if release.Values, err = chartutil.ReadValuesFile(values); err != nil {
			return fmt.Errorf("reading the chart's values: %w", err)
		}
	}
	dir, err := release.Write(out)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

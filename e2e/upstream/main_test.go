// SPDX-License-Identifier: Apache-2.0

// Package upstream_test runs Cluster API's own end-to-end specs, unchanged, with this provider: in a sandbox, or in a
// management cluster that is there already. It is a module of its own: the specs need modules that the provider doesn't.
package upstream_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	repositoryRoot = "../.."
	// kubeconfigVariable names the kubeconfig file of a management cluster. Without it the specs run in a sandbox.
	kubeconfigVariable = "CAPI_CONFORMANCE_KUBECONFIG"
	// variablesVariable names a YAML file with the variables of that cluster's MAAS.
	variablesVariable = "CAPI_CONFORMANCE_VARIABLES"
	// artifactsVariable names a directory that gets what the specs write. Default: one that is removed.
	artifactsVariable = "CAPI_CONFORMANCE_ARTIFACTS"
	// reportVariable names a document whose table of results is brought up to date.
	reportVariable = "CAPI_CONFORMANCE_REPORT"
	// maasVariable is the version of MAAS, such as 4.0: what the sandbox's is, and where results go.
	maasVariable = "CAPI_CONFORMANCE_MAAS"

	suiteTimeout = 12 * time.Hour
)

// here is where the specs run.
var here *place

func TestSpecs(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.Timeout = suiteTimeout
	ginkgo.RunSpecs(t, "Cluster API's end-to-end specs", suite, reporter)
}

var _ = ginkgo.BeforeSuite(func() {
	artifacts := os.Getenv(artifactsVariable)
	if artifacts == "" {
		var err error
		artifacts, err = os.MkdirTemp("", "capmaas-upstream-")
		succeeds(err)
		ginkgo.DeferCleanup(func() { succeeds(os.RemoveAll(artifacts)) })
	}
	var err error
	here, err = newPlace(artifacts)
	succeeds(err)
	ginkgo.DeferCleanup(func() { succeeds(here.stop()) })
})

// before is MAAS before the spec.
var before []byte

var _ = ginkgo.BeforeEach(func() {
	if here.box != nil {
		before = here.box.MAAS.State()
	}
})

// Ginkgo calls this after what the spec cleans up.
var _ = ginkgo.AfterEach(func() {
	if here.box == nil {
		return
	}
	succeeds(here.box.Err())
	remains, err := ledger.Remains(before, here.box.MAAS.State())
	succeeds(err)
	if len(remains) > 0 {
		ginkgo.Fail("left in MAAS (- before, + after):\n" + strings.Join(remains, "\n"))
	}
})

var _ = ginkgo.ReportAfterSuite("results", func(report ginkgo.Report) {
	if file := os.Getenv(reportVariable); file != "" {
		version, err := maasVersion()
		succeeds(err)
		succeeds(updateResults(file, version.Series(), report))
	}
})

// maasVersion is the version that is asked for, or the simulator's.
func maasVersion() (maas.Version, error) {
	version, err := simulator.ParseVersion(os.Getenv(maasVariable))
	if err != nil {
		return version, fmt.Errorf("%s: %w", maasVariable, err)
	}
	return version, nil
}

// succeeds fails the spec if there is an error.
func succeeds(err error) {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// keepLogs copies the sandbox's logs to the artifacts.
func keepLogs(logs, artifacts string) error {
	err := os.CopyFS(filepath.Join(artifacts, "sandbox"), os.DirFS(logs))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

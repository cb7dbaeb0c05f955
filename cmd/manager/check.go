// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// checkCommand is the first argument that makes the program check its requirements and end.
const checkCommand = "check"

// checkTimeout bounds one check: the client would retry a MAAS that does not respond for longer.
const checkTimeout = 30 * time.Second

// runCheck is `manager check`. It writes a line per check, and returns the program's exit code: 0 if all is well, 1 if
// not, 2 for wrong usage. It changes nothing.
func runCheck(ctx context.Context, args []string, out, errOut io.Writer) int {
	opts := defaultOptions()
	flags := pflag.NewFlagSet("manager "+checkCommand, pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&opts.reconcile.Credentials.Dir, "maas-config-dir", opts.reconcile.Credentials.Dir,
		"Directory with the manager's own MAAS credentials.")
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		fmt.Fprintf(errOut, "manager %s: %v\n", checkCommand, cmp.Or(err, fmt.Errorf("unexpected argument %q", flags.Arg(0))))
		return 2
	}
	code := 0
	for _, check := range []struct {
		about string
		run   func(context.Context, options) (string, error)
	}{
		{"Kubernetes", checkKubernetes},
		{"MAAS", checkMAAS},
	} {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		found, err := check.run(ctx, opts)
		cancel()
		if err != nil {
			fmt.Fprintf(out, "FAILED %s: %v\n", check.about, err)
			code = 1
			continue
		}
		fmt.Fprintf(out, "ok     %s: %s\n", check.about, found)
	}
	return code
}

// needed are the kinds that the manager works with, by API version.
var needed = map[string][]string{
	infrav1.GroupVersion.String(): {"LXDHost", "MaasCluster", "MaasClusterTemplate", "MaasMachine",
		"MaasMachineTemplate", "MaasRemediation", "MaasRemediationTemplate"},
	clusterv1.GroupVersion.String(): {"Cluster", "Machine"},
}

// checkKubernetes checks that the API serves our kinds and Cluster API's.
func checkKubernetes(context.Context, options) (string, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return "", fmt.Errorf("finding the Kubernetes API: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = checkTimeout
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making the client: %w", err)
	}
	var missing []string
	for version, kinds := range needed {
		resources, err := api.ServerResourcesForGroupVersion(version)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s is not served: %v", version, err))
			continue
		}
		for _, kind := range kinds {
			if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
				missing = append(missing, fmt.Sprintf("%s is not served in %s", kind, version))
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return "", errors.New(strings.Join(missing, "; "))
	}
	return "the CRDs and Cluster API are served", nil
}

// inValues explains errors of a MAAS that the chart's values give.
var inValues = maas.Names{Endpoint: "the chart's value maas.endpoint", CABundle: "the chart's value maas.caBundle"}

// checkMAAS checks that MAAS accepts the manager's own credentials, if it has any.
func checkMAAS(ctx context.Context, opts options) (string, error) {
	config, err := opts.reconcile.Credentials.Read()
	switch {
	case err != nil && !isGiven(opts.reconcile.Credentials.Dir):
		return err.Error(), nil // Each MaasCluster has to name a Secret.
	case err != nil:
		return "", err
	}
	api, err := maas.NewClient(config)
	if err != nil {
		return "", err
	}
	user, err := api.WhoAmI(ctx)
	var version maas.Version
	if err == nil {
		version, err = api.Version(ctx)
	}
	if err != nil {
		found, remedy := inValues.Explain(err)
		return "", fmt.Errorf("%s: %s: %s", config.Endpoint, found, remedy)
	}
	switch {
	case version.HasEntitlements():
		return fmt.Sprintf("MAAS %s at %s takes the API key of %s", version, config.Endpoint, user.Username), nil
	case !user.Administrator:
		return "", fmt.Errorf("MAAS %s at %s takes the API key, but its user %s is no administrator: VM hosts, DNS and the "+
			"deletion of machines are for administrators", version, config.Endpoint, user.Username)
	}
	return fmt.Sprintf("MAAS %s at %s takes the API key of the administrator %s", version, config.Endpoint,
		user.Username), nil
}

// isGiven reports whether the manager has a file of credentials, which may be unreadable.
func isGiven(dir string) bool {
	return slices.ContainsFunc([]string{"config/maasEndpoint", "credentials/apiKey"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	})
}

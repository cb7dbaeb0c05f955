// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// orphansTimeout leaves time to wait for --settle-time, to read the proofs and to answer the questions.
	orphansTimeout = 30 * time.Minute
	// defaultSettleTime is the manager's.
	defaultSettleTime = 4 * time.Minute
)

func (o *options) addOrphanFlags(fs *pflag.FlagSet) {
	o.timeout = orphansTimeout
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Kubeconfig of the management cluster; all its namespaces are read. Default: $KUBECONFIG, then the pod's own.")
	fs.DurationVar(&o.settleTime, "settle-time", defaultSettleTime,
		"Machines that look like orphans are checked again after this time, and only reported if they still do. 0: no second check.")
	fs.BoolVar(&o.remove, "delete", false, "Remove the orphans, after a question for each. Without it nothing is changed.")
	fs.BoolVar(&o.yes, "yes", false, "Don't ask.")
	fs.StringArrayVar(&o.vouched, "vouch-for", nil,
		"Owner id of a cluster whose machines are in doubt: --delete removes them, too. You vouch that no other management cluster\n"+
			"has that cluster. It can be given several times.")
}

// completeOrphans sets o.kubernetes.
func (o *options) completeOrphans(s surroundings) []string {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case o.settleTime < 0:
		wrong("--settle-time: %s is no time to wait", o.settleTime)
	case o.timeout > 0 && o.timeout <= o.settleTime:
		wrong("--timeout: %s is not longer than --settle-time", o.timeout)
	}
	if o.yes && !o.remove {
		wrong("--yes is for --delete")
	}
	if len(o.vouched) > 0 && !o.remove {
		wrong("--vouch-for is for --delete")
	}
	if o.apiKeyFile == "-" && o.remove && !o.yes {
		wrong("--maas-api-key-file=-: the standard input is for the answers to --delete; give a file, or --yes")
	}
	var err error
	if o.kubernetes, err = managementCluster(o.kubeconfig, s.getenv("KUBECONFIG")); err != nil {
		wrong("--kubeconfig (or KUBECONFIG): %v", err)
	}
	return problems
}

// managementCluster returns the configuration for the Kubernetes API: from the flag, from KUBECONFIG, or of a pod.
func managementCluster(flag, env string) (*rest.Config, error) {
	if flag == "" && env == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("it is missing: the kubeconfig of the management cluster")
		}
		return config, err
	}
	return kubeconfigOf(flag, env, "").ClientConfig()
}

// kubeconfigOf reads the kubeconfig of the flag, or those of KUBECONFIG; "" is the current context.
func kubeconfigOf(flag, env, context string) clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: flag, Precedence: filepath.SplitList(env)}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
}

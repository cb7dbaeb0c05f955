// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// podNamespace is where a pod finds its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (o *options) addHostFlags(fs *pflag.FlagSet, waits bool) {
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the LXDHost. Default: that of the kubeconfig's context.")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the management cluster. Default: $KUBECONFIG, then the pod's own.")
	fs.StringVar(&o.context, "context", "", "Context of the kubeconfig. Default: the current one.")
	if waits {
		o.timeout = 0
		fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long to wait until the host is empty; it is emptied all the same afterwards. 0: for ever.")
	}
}

// completeHost sets o.kubernetes, o.namespace and o.object.
func (o *options) completeHost(flags *pflag.FlagSet, s surroundings) []string {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if o.timeout < 0 {
		wrong("--timeout: %s is no time to wait", o.timeout)
	}
	if o.object = flags.Arg(0); flags.NArg() > 0 && (o.object == "" || strings.Contains(o.object, "/")) {
		wrong("%q is no name of an LXDHost", o.object)
	}
	env := s.getenv("KUBECONFIG")
	if o.kubeconfig == "" && env == "" {
		config, err := managementCluster("", "")
		if err != nil {
			wrong("--kubeconfig (or KUBECONFIG): %v", err)
			return problems
		}
		o.kubernetes = config
		if own, err := os.ReadFile(podNamespace); err == nil && o.namespace == "" {
			o.namespace = strings.TrimSpace(string(own))
		}
		return problems
	}
	config := kubeconfigOf(o.kubeconfig, env, o.context)
	var err error
	if o.kubernetes, err = config.ClientConfig(); err != nil {
		wrong("--kubeconfig (or KUBECONFIG): %v", err)
		return problems
	}
	if o.namespace == "" {
		if o.namespace, _, err = config.Namespace(); err != nil {
			wrong("--namespace: %v", err)
		}
	}
	return problems
}

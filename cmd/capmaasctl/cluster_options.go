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

// addClusterFlags adds the flags of a command in a namespace of the management cluster. of is what the namespace is of.
func (o *options) addClusterFlags(fs *pflag.FlagSet, of string) {
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of "+of+". Default: that of the kubeconfig's context.")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the management cluster. Default: $KUBECONFIG, then the pod's own.")
	fs.StringVar(&o.context, "context", "", "Context of the kubeconfig. Default: the current one.")
}

// completeCluster sets o.kubernetes, and o.namespace if it is not given: to that of the kubeconfig's context, or the pod's
// own.
func (o *options) completeCluster(s surroundings) []string {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
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

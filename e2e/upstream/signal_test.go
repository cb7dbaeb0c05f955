// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KCPRemediationSpec holds machines before kubeadm, by a ConfigMap in the management cluster.
const (
	signalConfigMap = "mhc-test"
	signalPass      = "pass"
	signalScript    = "/usr/local/bin/wait-for-signal"
	signalPatch     = `{"data":{"signal":"ack-pass"}}`
	signalInterval  = 500 * time.Millisecond
)

// signalScriptText is run on real machines. clusterctl replaces what is in ${}.
const signalScriptText = `#!/bin/sh
# usage: wait-for-signal TOKEN SERVER NAMESPACE
token=$1 url=$2/api/v1/namespaces/$3/configmaps/` + signalConfigMap + `
ask() { curl --silent --insecure --header "Authorization: Bearer $token" "$@" "$url"; }
until ask | grep --quiet '"signal": *"` + signalPass + `"'; do sleep 1; done
ask --request PATCH --header 'Content-Type: application/merge-patch+json' --data '` + signalPatch + `'
`

// awaitSignal does in the sandbox what that script does.
func awaitSignal(ctx context.Context, commands []string) error {
	i := slices.IndexFunc(commands, func(command string) bool { return strings.HasPrefix(command, signalScript) })
	if i < 0 {
		return nil
	}
	words := strings.Fields(commands[i])
	if len(words) != 4 {
		return fmt.Errorf("%s has %d arguments, want 3", signalScript, len(words)-1)
	}
	clients, err := kubernetes.NewForConfig(&rest.Config{
		Host: words[2], BearerToken: words[1], TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", words[2], err)
	}
	signals := clients.CoreV1().ConfigMaps(words[3])
	tick := time.NewTicker(signalInterval)
	defer tick.Stop()
	for {
		signal, err := signals.Get(ctx, signalConfigMap, metav1.GetOptions{})
		if err == nil && signal.Data["signal"] == signalPass {
			_, err = signals.Patch(ctx, signalConfigMap, types.MergePatchType, []byte(signalPatch), metav1.PatchOptions{})
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// announce tells the specs in the sandbox where the management cluster's API is, as kubeadm would.
func (p *place) announce(ctx context.Context) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: p.box.RESTConfig.Host}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing the ConfigMap cluster-info: %w", err)
	}
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": string(kubeconfig)},
	}
	if err := p.box.Client.Create(ctx, info); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("writing the ConfigMap cluster-info: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"net"
	"strings"
)

// etcdArgs: nothing has to survive, so nothing is synced to disk, and what is in the log is seldom written to the
// database.
func etcdArgs(data, client, peer string) []string {
	return []string{
		"--name=sandbox",
		"--data-dir=" + data,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=sandbox=" + peer,
		"--unsafe-no-fsync=true",
		"--backend-batch-interval=2s",
		"--backend-batch-limit=100000",
		"--log-level=warn",
	}
}

func (c *ControlPlane) apiserverArgs(etcd, listen string) []string {
	_, port, _ := net.SplitHostPort(listen)
	return append(c.auditArgs(), []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + loopback,
		"--secure-port=" + port,
		// Without it the API server needs a default route, which a machine without a network lacks.
		"--advertise-address=" + loopback,
		"--tls-cert-file=" + c.credentials.path("apiserver.crt"),
		"--tls-private-key-file=" + c.credentials.path("apiserver.key"),
		"--client-ca-file=" + c.credentials.path("ca.crt"),
		"--token-auth-file=" + c.credentials.path("tokens.csv"),
		"--authorization-mode=RBAC",
		// As in OpenShift: blocking the deletion of an owner needs the right to change its finalizers.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		"--allow-privileged=true",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.credentials.path("sa.key"),
		"--service-account-signing-key-file=" + c.credentials.path("sa.key"),
		// There is nobody to be fair to, and no endpoint of the Service kubernetes: it may not be on the loopback.
		"--endpoint-reconciler-type=none",
		"--enable-priority-and-fairness=false",
		// Watches of clients that are gone must not hold up the end.
		"--shutdown-delay-duration=0s",
		"--request-timeout=60s",
	}...)
}

// controllers are those that a management cluster needs, and those that make pods of the chart's Deployments and
// DaemonSets. The others would manage nodes, which don't exist.
var controllers = []string{
	"namespace-controller",
	"garbage-collector-controller",
	"serviceaccount-controller",
	"root-ca-certificate-publisher-controller",
	"clusterrole-aggregation-controller",
	"deployment-controller",
	"replicaset-controller",
	"daemonset-controller",
}

func (c *ControlPlane) controllerManagerArgs(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		"--secure-port=0",
		"--leader-elect=false",
		"--root-ca-file=" + c.credentials.path("ca.crt"),
		"--controllers=" + strings.Join(controllers, ","),
		"--namespace-sync-period=30s",
		"--kube-api-qps=100",
		"--kube-api-burst=200",
	}
}

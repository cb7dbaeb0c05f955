// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/capmaas/cluster-api-provider-maas/controllers"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// options come from the command line.
type options struct {
	reconcile                  controllers.Options
	healthAddr                 string
	diagnostics                flags.ManagerOptions
	leaderElect                bool
	leaderElectionNamespace    string
	leaseDuration              time.Duration
	renewDeadline, retryPeriod time.Duration
	connectRetry               time.Duration
	syncPeriod                 time.Duration
	kubeQPS                    float32
	kubeBurst                  int
	logLevel, logFormat        string
}

func defaultOptions() options {
	return options{
		healthAddr:    ":9440",
		leaseDuration: 15 * time.Second, renewDeadline: 10 * time.Second, retryPeriod: 2 * time.Second,
		connectRetry: 10 * time.Second, syncPeriod: 10 * time.Minute,
		reconcile: controllers.Options{
			Clock:       clock.RealClock{},
			Credentials: scope.ManagerCredentials{Dir: "/etc/capmaas", Namespaces: []string{}},
			PollActive:  5 * time.Second, PollIdle: time.Minute,
			SettleTime: record.DefaultSettleTime, PowerSettleTime: record.DefaultPowerSettleTime,
			CommissionTimeout: 30 * time.Minute, DeployTimeout: 45 * time.Minute, VMHostUnreachableTimeout: 5 * time.Minute,
			OrphanAuditInterval: 10 * time.Minute, LXDHostInterval: controllers.DefaultLXDHostInterval,
			Initializer: maascluster.Initializer{PullPolicy: "IfNotPresent"},
			Concurrency: 10,
		},
		kubeQPS: 100, kubeBurst: 200,
		logLevel: "info", logFormat: "json",
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.reconcile.Namespace, "namespace", o.reconcile.Namespace,
		"Namespace whose objects are reconciled. Default: all namespaces.")
	fs.StringVar(&o.reconcile.WatchFilter, "watch-filter", o.reconcile.WatchFilter,
		"Value of the label cluster.x-k8s.io/watch-filter of the objects to reconcile. Default: all objects.")
	fs.StringVar(&o.healthAddr, "health-addr", o.healthAddr, "Address of /healthz and /readyz.")
	flags.AddManagerOptions(fs, &o.diagnostics)

	fs.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect,
		"Enable leader election: of several managers, one reconciles at a time.")
	fs.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", o.leaderElectionNamespace,
		"Namespace of the Lease that the leader holds, and, without --namespace, of the LXDHosts of MAAS's VM hosts that "+
			"are no MaasMachine's. Default for the Lease: the pod's.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", o.leaseDuration,
		"How long the others wait for a leader that does not renew its lease.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", o.renewDeadline,
		"How long the leader tries to renew its lease before it gives up.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", o.retryPeriod,
		"Time between two tries to get or renew the lease.")

	fs.StringVar(&o.reconcile.Credentials.Dir, "maas-config-dir", o.reconcile.Credentials.Dir,
		"Directory with the manager's own MAAS credentials: config/maasEndpoint, credentials/apiKey and, optionally, "+
			"credentials/caBundle. They are for MaasClusters without spec.credentialsRef, and are read again when they change.")
	fs.StringSliceVar(&o.reconcile.Credentials.Namespaces, "maas-config-namespaces", o.reconcile.Credentials.Namespaces,
		"Namespaces, beside the manager's, whose MaasClusters and LXDHosts may use the manager's own MAAS credentials; "+
			"others need spec.credentialsRef and spec.maasCredentialsRef. *: all namespaces; the credentials are copied only "+
			"into host clusters of those that are named. Default: that of --namespace.")
	fs.DurationVar(&o.reconcile.PollActive, "poll-active", o.reconcile.PollActive,
		"How often machines that are expected to change are read from MAAS.")
	fs.DurationVar(&o.reconcile.PollIdle, "poll-idle", o.reconcile.PollIdle, "How often all machines are read from MAAS.")
	fs.DurationVar(&o.reconcile.SettleTime, "settle-time", o.reconcile.SettleTime, "How long to wait for the effect of a "+
		"MAAS request whose response was lost before repeating it; a request that switches power has four times as long. It "+
		"counts from before the request, for whose response the manager waits up to 150 s.")
	fs.DurationVar(&o.reconcile.PowerSettleTime, "power-settle-time", o.reconcile.PowerSettleTime, "How long a request "+
		"that switches power has at least: MAAS tries a BMC that does not respond three times, for 5 minutes each.")
	fs.DurationVar(&o.reconcile.CommissionTimeout, "commission-timeout", o.reconcile.CommissionTimeout,
		"How long MAAS may commission and test a machine before its condition reports CommissioningTimedOut. 0: for ever.")
	fs.DurationVar(&o.reconcile.DeployTimeout, "deploy-timeout", o.reconcile.DeployTimeout,
		"How long MAAS may deploy a machine before its condition reports DeployTimedOut. 0: for ever.")
	fs.DurationVar(&o.reconcile.VMHostUnreachableTimeout, "vm-host-unreachable-timeout",
		o.reconcile.VMHostUnreachableTimeout, "How long the deletion of a VM waits for a VM host that MAAS can't reach. The "+
			"replacement of a control plane on a dead host waits that long.")
	fs.DurationVar(&o.reconcile.OrphanAuditInterval, "orphan-audit-interval", o.reconcile.OrphanAuditInterval,
		"How often all machines in MAAS are checked for orphans: marked as ours, and claimed by no object. 0: never.")
	fs.DurationVar(&o.reconcile.LXDHostInterval, "poll-lxd-hosts", o.reconcile.LXDHostInterval,
		"How often each LXD host, and MAAS's list of VM hosts, are read for LXDHosts.")
	fs.BoolVar(&o.reconcile.Evacuation, "evacuation", o.reconcile.Evacuation, "Replace the Machines of VMs on LXDHosts "+
		"with spec.evacuate. The manager needs the rights of the chart's value evacuation.enabled.")
	fs.DurationVar(&o.connectRetry, "workload-connect-retry", o.connectRetry,
		"How often connecting to a workload cluster that does not respond yet is retried.")
	fs.StringVar(&o.reconcile.Initializer.Image, "initializer-image", o.reconcile.Initializer.Image,
		"Image of the LXD initializer, which the manager deploys to host clusters.")
	fs.StringVar(&o.reconcile.Initializer.PullPolicy, "initializer-image-pull-policy", o.reconcile.Initializer.PullPolicy,
		"Always, IfNotPresent or Never.")
	fs.DurationVar(&o.syncPeriod, "sync-period", o.syncPeriod, "How often everything is reconciled without a change.")
	fs.IntVar(&o.reconcile.Concurrency, "concurrency", o.reconcile.Concurrency,
		"How many MaasMachines, and how many MaasClusters, are reconciled at the same time, beside those that wait for MAAS.")
	fs.Float32Var(&o.kubeQPS, "kube-api-qps", o.kubeQPS, "Maximum requests per second to the Kubernetes API.")
	fs.IntVar(&o.kubeBurst, "kube-api-burst", o.kubeBurst, "Maximum burst of requests to the Kubernetes API.")
	fs.StringVar(&o.logLevel, "log-level", o.logLevel, "debug, info or error.")
	fs.StringVar(&o.logFormat, "log-format", o.logFormat, "json or text.")
}

// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"path/filepath"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
)

// AuditLog is the file in which the management cluster's API server keeps what ServiceAccounts asked, where
// Options.Audit is set.
func (s *Sandbox) AuditLog() string { return filepath.Join(s.LogDir, controlplane.AuditLogName) }

// HostAuditLog is the same for a host cluster, by the name of the cluster. It stays when the cluster is deleted.
func (s *Sandbox) HostAuditLog(cluster string) string {
	return filepath.Join(guest.HostClusterLogs(s.LogDir, cluster), controlplane.AuditLogName)
}

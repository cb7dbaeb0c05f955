// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// AuditLogName is the name of the audit log in Options.LogDir: one JSON object of audit.k8s.io/v1 in each line, for
// each request of a ServiceAccount that got a response, and for each watch also when its response began.
const AuditLogName = "audit.log"

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

func (c *ControlPlane) auditPolicyFile() string {
	return filepath.Join(c.options.Dir, "audit-policy.yaml")
}

func (c *ControlPlane) writeAuditPolicy() error {
	if !c.options.Audit {
		return nil
	}
	if err := os.WriteFile(c.auditPolicyFile(), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	return nil
}

func (c *ControlPlane) auditArgs() []string {
	if !c.options.Audit {
		return nil
	}
	return []string{
		"--audit-policy-file=" + c.auditPolicyFile(),
		// An API server that can begin a watch with all that there is, is not asked for lists; older ones are.
		"--feature-gates=WatchList=false",
		"--audit-log-path=" + filepath.Join(c.options.LogDir, AuditLogName),
	}
}

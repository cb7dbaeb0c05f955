// SPDX-License-Identifier: Apache-2.0

package lxdhost

import "github.com/capmaas/cluster-api-provider-maas/pkg/guard"

// Server returns the LXD that the options are for: the one at the address, with the certificate.
func (o Options) Server() guard.Server { return guard.ServerAt(o.Address, o.ServerCertificate) }

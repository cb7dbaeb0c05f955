// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"fmt"
	"net/http"
	"time"

	lxdclient "github.com/canonical/lxd/client"
)

// CallTimeout bounds each call of a client that Connect returned. LXD's own client would wait for an hour.
const CallTimeout = 2 * time.Minute

// Connect returns a client of the daemon at a unix socket, which has responded to it. The calls of the client end with
// ctx. One that gets no response within CallTimeout fails with context.DeadlineExceeded, and so does Connect.
func Connect(ctx context.Context, socket string) (lxdclient.InstanceServer, error) {
	return connect(ctx, socket, CallTimeout)
}

func connect(ctx context.Context, socket string, timeout time.Duration) (lxdclient.InstanceServer, error) {
	args := &lxdclient.ConnectionArgs{HTTPClient: &http.Client{Timeout: timeout}}
	client, err := lxdclient.ConnectLXDUnixWithContext(ctx, socket, args)
	if err != nil {
		return nil, fmt.Errorf("connecting to the LXD at %s: %w", socket, err)
	}
	return client, nil
}

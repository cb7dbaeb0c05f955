// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
)

var errNotInstalled = errors.New("nothing is installed on it")

// Hang stops all that runs on a machine, which stays powered on: its Node reports nothing any more. It runs again after
// the next boot, unless its disk is bad: then only after another deployment.
func (g *Guests) Hang(systemID string, badDisk bool) error {
	g.mutex.Lock()
	h := g.hosts[systemID]
	g.mutex.Unlock()
	if h == nil {
		return fmt.Errorf("machine %s can't hang: %w", systemID, errNotInstalled)
	}
	h.power.Lock()
	defer h.power.Unlock()
	h.badDisk = h.badDisk || badDisk
	if h.off != nil {
		h.off()
		<-h.ran
		h.runNothing()
	}
	return nil
}

// runNothing is a boot that fails. Call it with the lock on the power held.
func (h *host) runNothing() {
	h.off, h.ran = func() {}, make(chan struct{})
	close(h.ran)
}

// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// milestones are what a VM says on its console when it comes so far.
var milestones = []string{
	"Linux version", "systemd[1]: Detected", "running 'init-local'", "running 'init'", "running 'modules:final'", "finished at",
}

// console is what a VM said since it was started. Milestones are logged as they come.
type console struct {
	t     *testing.T
	began time.Time

	mu    sync.Mutex
	lines []string
	came  map[string]bool
}

// watch reads a VM's console until the test ends, which shows it if it fails.
func (b *bed) watch(t *testing.T, vm string) *console {
	t.Helper()
	c := &console{t: t, began: time.Now(), came: map[string]bool{}}
	socket := filepath.Join(b.host.Daemon.Dir(), "logs", b.object.Server.Project+"_"+vm, "qemu.console")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() { c.read(ctx, socket) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if t.Failed() {
			t.Logf("The console of %s:\n%s", vm, strings.Join(c.lines, "\n"))
		}
	})
	return c
}

func (c *console) read(ctx context.Context, socket string) {
	var conn net.Conn
	dial := func(ctx context.Context) (done bool, err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", socket)
		return err == nil, nil // It is not there before QEMU is.
	}
	if wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, dial) != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for said := bufio.NewScanner(conn); said.Scan(); {
		c.say(said.Text())
	}
}

func (c *console) say(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
	for _, words := range milestones {
		if strings.Contains(line, words) && !c.came[words] {
			c.came[words] = true
			c.t.Logf("%6.1f s after the start: %s", time.Since(c.began).Seconds(), words)
		}
	}
}

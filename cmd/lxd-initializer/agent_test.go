// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

func TestRetriesGetRarer(t *testing.T) {
	t.Parallel()
	a := newAgent(options{checkInterval: time.Minute}, nil, nil)
	passing, mendable := errors.New("LXD is not up"), &problem{permanent: true}
	var waits []time.Duration
	for range 10 {
		waits = append(waits, a.delay(passing))
	}
	if waits[0] >= 2*firstRetry || waits[9] < time.Minute {
		t.Errorf("the waits are %v", waits)
	}
	most := time.Minute + time.Minute/5
	for i, wait := range waits {
		if wait > most || i > 0 && i < 6 && wait <= waits[i-1] {
			t.Errorf("the waits are %v", waits)
		}
	}
	for _, failed := range []error{nil, mendable} {
		if wait := a.delay(failed); wait < time.Minute || wait > most {
			t.Errorf("after %v the wait is %v", failed, wait)
		}
		if wait := a.delay(passing); wait >= 2*firstRetry {
			t.Errorf("after that, the first wait is %v", wait)
		}
	}
	if wait := a.delay(&problem{retryAfter: time.Hour}); wait != time.Hour {
		t.Errorf("MAAS asked for an hour and gets %v", wait)
	}
}

// start runs an initializer until stop, which waits for its end. A run that ends before is an error.
func (n *testNode) start(a *agent) (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() {
		err := a.run(ctx)
		if ctx.Err() == nil {
			n.t.Errorf("the initializer ended by itself: %v", err)
		}
		done <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

// directory makes an empty directory for LXD's socket; install puts the node's socket there.
func (n *testNode) directory() (socket string, install func()) {
	n.t.Helper()
	socket = filepath.Join(n.t.TempDir(), "unix.socket")
	return socket, func() {
		n.t.Helper()
		n.must(os.Symlink(n.lxd.Socket(), socket))
	}
}

func TestANodeWithoutLXDReportsThatUntilItHasIt(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	snap, _ := n.directory()
	deb, install := n.directory()
	a := n.agent(map[string]string{"LXD_SOCKET": snap + "," + deb})
	stop := n.start(a)
	n.await("the Node reports that there is no LXD", func(context.Context) bool { return n.condition().Reason == reasonLXDNotInstalled })
	n.wantCondition(corev1.ConditionFalse, reasonLXDNotInstalled)
	for _, path := range []string{snap, deb, "install"} {
		if message := n.condition().Message; !strings.Contains(message, path) {
			t.Errorf("the message does not name %s: %s", path, message)
		}
	}
	if a.ready.Load() {
		t.Error("the initializer is ready")
	}
	install()
	n.await("the node is a host", func(context.Context) bool { return a.ready.Load() })
	stop()
	n.wantHost()
}

func TestANodeWithoutLXDRetires(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	socket, install := n.directory()
	a := n.agent(map[string]string{"LXD_SOCKET": socket})
	if err := a.pass(t.Context()); !errors.Is(err, lxdnode.ErrNotInstalled) {
		t.Fatalf("the pass ends with %v", err)
	}
	n.retire(true)
	n.must(a.pass(t.Context()))
	n.wantCondition(corev1.ConditionFalse, infrav1.LXDHostRetiredReason)

	// With a key pair LXD may have trusted it: that LXD is missing now does not undo that.
	n.retire(false)
	install()
	n.settle(a)
	n.must(os.Remove(socket))
	n.retire(true)
	if err := a.pass(t.Context()); !errors.Is(err, lxdnode.ErrNotInstalled) {
		t.Errorf("the retirement ends with %v", err)
	}
	if n.secret() == nil {
		t.Error("the key pair is deleted")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (do roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return do(r) }

// A manager that saw no condition releases the machine: nothing may register it from then on.
func TestANodeThatIsAskedToRetireAsItBeginsRegistersNothing(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	var ask sync.Once
	n.between = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/"+n.name+"/status") {
				ask.Do(func() { n.retire(true) })
			}
			return next.RoundTrip(r)
		})
	}
	n.must(n.agent().pass(t.Context()))
	if writes := n.writes(); len(writes) > 0 {
		t.Errorf("MAAS was asked for %v", writes)
	}
	n.wantCondition(corev1.ConditionFalse, infrav1.LXDHostRetiredReason)
}

func TestRunEndsWithLXDsDirectory(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	dir := t.TempDir()
	mounted, err := os.Open(dir) // Like a mount, it leads to the directory also when that is removed.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mounted.Close() })
	a := n.agent(map[string]string{"LXD_SOCKET": fmt.Sprintf("/proc/self/fd/%d/unix.socket", mounted.Fd())})
	if err := a.pass(t.Context()); !errors.Is(err, lxdnode.ErrNotInstalled) || errors.Is(err, errDirectoryRemoved) {
		t.Errorf("in an empty directory the pass ends with %v", err)
	}
	n.must(os.Remove(dir))
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	if err := a.run(ctx); !errors.Is(err, errDirectoryRemoved) {
		t.Errorf("it ends with %v", err)
	}
	n.wantCondition(corev1.ConditionFalse, reasonLXDNotInstalled)
}

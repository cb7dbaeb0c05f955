// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"
)

// packages are directories for LXD's socket, short enough for one: the snap's, and that of the distribution's package.
func packages(t *testing.T) (snap, deb string) {
	t.Helper()
	for _, dir := range []*string{&snap, &deb} {
		made, err := os.MkdirTemp("", "lxd") //nolint:usetesting // the path of a unix socket has to be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(made) })
		*dir = filepath.Join(made, "unix.socket")
	}
	return snap, deb
}

// alive makes a socket that accepts connections.
func alive(t *testing.T, path string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
}

func dead(t *testing.T, path string) { refused.Socket(t, path) }

func none(*testing.T, string) {}

func TestTheSocketThatAcceptsConnectionsIsChosen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		snap, deb func(*testing.T, string)
		want      string
		err       error
	}{
		"none":                      {none, none, "", ErrNotInstalled},
		"the snap's":                {alive, none, "snap", nil},
		"the package's":             {none, alive, "deb", nil},
		"both":                      {alive, alive, "snap", nil},
		"a snap that was removed":   {dead, alive, "deb", nil},
		"a package that was killed": {alive, dead, "snap", nil},
		"a dead one":                {none, dead, "", syscall.ECONNREFUSED},
		"two dead ones":             {dead, dead, "", syscall.ECONNREFUSED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap, deb := packages(t)
			c.snap(t, snap)
			c.deb(t, deb)
			got, err := firstAlive(t.Context(), []string{snap, deb})
			if want := map[string]string{"snap": snap, "deb": deb}[c.want]; got != want || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, want, c.err)
			}
		})
	}
}

func TestASocketThatAppearsLaterIsChosen(t *testing.T) {
	t.Parallel()
	snap, deb := packages(t)
	if _, err := firstAlive(t.Context(), []string{snap, deb}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("before LXD is installed: %v", err)
	}
	if _, err := firstAlive(t.Context(), []string{snap + strings.Repeat("/too-long-for-a-socket", 5)}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("a long path: %v", err)
	}
	alive(t, deb)
	if got, err := firstAlive(t.Context(), []string{snap, deb}); err != nil || got != deb {
		t.Errorf("after: %q, %v", got, err)
	}
}

// The check of LXD is ok whichever version it is, and says what to know of a new one.
func TestANewLXDIsDescribed(t *testing.T) {
	t.Parallel()
	for version, notes := range map[string]int{"5.0.2": 0, "5.21.7": 0, "6.6": 0, "6.7": 1, lxdapi.Newest: 1, "6.10.0": 2} {
		found := describe(&api.Server{Environment: api.ServerEnvironment{ServerVersion: version, Driver: "qemu | lxc"}})
		if !strings.HasPrefix(found, "LXD "+version+", drivers lxc, qemu") || strings.Count(found, "; ") != notes || strings.Contains(found, "\n") {
			t.Errorf("LXD %s is %q", version, found)
		}
	}
}

func TestSockets(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string][]string{
		"":                       {"/var/snap/lxd/common/lxd/unix.socket", "/var/lib/lxd/unix.socket"},
		"/run/lxd.socket":        {"/run/lxd.socket"},
		"/a/unix.socket,/b/sock": {"/a/unix.socket", "/b/sock"},
	} {
		if diff := cmp.Diff(want, Sockets(setting)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", setting, diff)
		}
	}
}

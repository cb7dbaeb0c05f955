// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/network"
)

// In a shell that has the sandbox's proxy, programs reach the rest of the world as in any other: here through a proxy of
// the user's, at a server of Go modules. clusterctl looks for a newer version of itself there after each command, and
// tries that for a minute.
func TestProgramsInTheSandboxsNetworkReachOtherServers(t *testing.T) {
	var asked atomic.Int32
	modules := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, has := map[string]string{
			"list": "v1.0.0\n", "v1.0.0.info": `{"Version": "v1.0.0"}`, "v1.0.0.mod": "module sigs.k8s.io/cluster-api\n",
		}[strings.TrimPrefix(r.URL.Path, "/sigs.k8s.io/cluster-api/@v/")]
		if !has {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(modules.Close)
	n, err := network.Open(names{}, machines{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	n.Forward([]string{"HTTPS_PROXY=http://me:secret@" + usersProxy(t, modules.Listener.Addr().String())})

	dir := t.TempDir()
	authority := filepath.Join(dir, "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: modules.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	telemetry := filepath.Join(dir, "go", "telemetry") // Go would write there when the test has ended.
	if err := os.MkdirAll(telemetry, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(telemetry, "mode"), []byte("off"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{filepath.Join(os.Getenv("CAPMAAS_BIN"), "clusterctl"), "version"},
		{"go", "list", "-m", "-versions", "sigs.k8s.io/cluster-api"},
	} {
		before := asked.Load()
		run := exec.CommandContext(t.Context(), command[0], command[1:]...)
		run.Dir = dir
		run.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local",
			// The test server's certificate is for this name.
			"GOPROXY=https://example.com", "GOSUMDB=off", "SSL_CERT_FILE=" + authority, "HTTPS_PROXY=" + n.ProxyURL().String(),
		}
		if out, err := run.CombinedOutput(); err != nil || asked.Load() == before {
			t.Errorf("%s: %v; the server of modules was asked: %v\n%s", strings.Join(command, " "), err, asked.Load() > before, out)
		}
	}
	if _, err := n.Dial(t.Context(), "192.0.2.1:443"); err == nil {
		t.Error("an address that is no machine's leads out of the sandbox")
	}
}

// usersProxy returns the address of a proxy that leads to a server, whatever it is asked for, for users with a password.
func usersProxy(t *testing.T, server string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", server)
		if err != nil || r.Method != http.MethodConnect || r.Host != "example.com:443" || r.Header.Get("Proxy-Authorization") == "" {
			http.Error(w, fmt.Sprint(r.Method, r.Host, err), http.StatusBadRequest)
			return
		}
		defer target.Close()
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(target, client) }()
		_, _ = io.Copy(client, target)
	}))
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}

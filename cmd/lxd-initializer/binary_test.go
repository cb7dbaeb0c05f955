// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// gate stands before the node's LXD, MAAS and the Kubernetes API, and counts the requests that change something. The
// last one that passes takes effect, but instead of a response strike is called; until the gate is armed again, nothing
// follows it.
type gate struct {
	mu     sync.Mutex
	strike func()
	left   int
	writes []string
}

// arm lets some changes pass; without strike, all.
func (g *gate) arm(changes int, strike func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strike, g.left = strike, changes
}

// written are all changes so far.
func (g *gate) written() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.writes)
}

// wrap guards one of the three.
func (g *gate) wrap(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Events are sent in the background: nothing waits for their response.
		if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") {
			next.ServeHTTP(w, r)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.strike != nil && g.left == 0 {
			panic(http.ErrAbortHandler)
		}
		g.writes = append(g.writes, name+" "+r.Method+" "+r.URL.Path)
		if g.left--; g.strike == nil || g.left > 0 {
			next.ServeHTTP(w, r)
			return
		}
		// It must take effect also if the client dies meanwhile.
		next.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		g.strike()
		panic(http.ErrAbortHandler)
	})
}

// lxdSocket is a way to the node's LXD through the gate. That LXD has each name once, as newer ones.
func (g *gate) lxdSocket(n *testNode) string {
	n.t.Helper()
	return lxdtest.Socket(n.t, n.lxd, func(lxd http.Handler) http.Handler { return g.wrap("LXD", lxdtest.UniqueNames(lxd)) })
}

// kubeconfig is a way to the Kubernetes API through the gate, which adds the pod's token: without TLS the client would
// not.
func (g *gate) kubeconfig(n *testNode) string {
	n.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	pod := rest.AnonymousClientConfig(apiConfig)
	pod.BearerToken = n.token
	transport, err := rest.TransportFor(pod)
	if err != nil {
		n.t.Fatal(err)
	}
	g.serve(n.t, listener, "Kubernetes", apiConfig.Host, transport)
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: "http://" + listener.Addr().String()}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	config.CurrentContext = "test"
	file := filepath.Join(n.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		n.t.Fatal(err)
	}
	return file
}

func (g *gate) serve(t *testing.T, listener net.Listener, name, target string, transport http.RoundTripper) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		// The program that is killed hangs up.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(g.wrap(name, proxy))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
}

// program is the real initializer of a node, behind a gate.
type program struct {
	*testNode
	gate *gate
	env  map[string]string
	log  string // of the latest run
}

func newProgram(t *testing.T) *program {
	t.Helper()
	g := &gate{}
	n := newBed(t, func(h http.Handler) http.Handler { return g.wrap("MAAS", h) }).newNode()
	p := &program{testNode: n, gate: g}
	p.env = n.env(map[string]string{"LXD_SOCKET": g.lxdSocket(n), "KUBECONFIG": g.kubeconfig(n), "LOG_LEVEL": "debug"})
	t.Cleanup(func() {
		if content, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("the initializer's last log:\n%s", content)
		}
	})
	return p
}

func (p *program) start() *process.Process {
	p.t.Helper()
	p.log = filepath.Join(p.t.TempDir(), "log")
	var env []string
	for name, value := range p.env {
		env = append(env, name+"="+value)
	}
	running, err := process.Start(process.Spec{Name: "lxd-initializer", Path: binary, Env: env, LogFile: p.log})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = running.Kill() })
	return running
}

// get reads one of the program's pages, health or metrics: its log contains their addresses.
func (p *program) get(server, page string) (status int, body string) {
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	var starting map[string]any
	if json.NewDecoder(bytes.NewReader(log)).Decode(&starting) != nil || starting[server] == nil {
		return 0, ""
	}
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, fmt.Sprintf("http://%s/%s", starting[server], page), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(content)
}

func (p *program) ready() bool {
	status, _ := p.get("health", "readyz")
	return status == http.StatusOK
}

// runKilled runs the program until it is killed right after the given number of changes, before it hears that the last one was
// done. It is false when the program was ready before.
func (p *program) runKilled(changes int) bool {
	p.t.Helper()
	var running *process.Process
	started, struck := make(chan struct{}), make(chan struct{})
	p.gate.arm(changes, func() {
		<-started
		_ = running.Kill()
		close(struck)
	})
	running = p.start()
	close(started)
	killed := false
	p.await("the initializer is killed or ready", func(context.Context) bool {
		select {
		case <-struck:
			killed = true
			return true
		default:
		}
		if code := running.ExitCode(); code >= 0 && code < 128 {
			p.t.Fatalf("the initializer ended with exit code %d", code)
		}
		return p.ready()
	})
	p.gate.arm(0, nil)
	_ = running.Kill()
	return killed
}

// runReady runs the program until it is ready.
func (p *program) runReady() {
	p.t.Helper()
	running := p.start()
	p.await("the initializer is ready", func(context.Context) bool { return p.ready() })
	_ = running.Kill()
}

// killAtEachWrite runs the program again and again, each time for one more change, until nothing is left to change. What it
// begins anew each time, as with the address that LXD listens on, it gets a second change for.
func (p *program) killAtEachWrite() []string {
	p.t.Helper()
	before := len(p.gate.written())
	const most = 30
	changes := 1
	for range most {
		if !p.runKilled(changes) {
			return p.gate.written()[before:]
		}
		written := p.gate.written()[before:]
		if changes = 1; len(written) > 1 && written[len(written)-1] == written[len(written)-2] {
			changes = 2
		}
	}
	p.t.Fatalf("the initializer changes something %d times: %v", most, p.gate.written()[before:])
	return nil
}

func TestKilledAtEachWriteAndResumed(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	writes := p.killAtEachWrite()
	for _, want := range []string{
		"LXD POST /1.0/storage-pools", "LXD POST /1.0/projects", "LXD PUT /1.0", "Kubernetes POST /api/v1/namespaces/" + namespace + "/secrets",
		"LXD POST /1.0/certificates", "MAAS POST /MAAS/api/2.0/vm-hosts/", "Kubernetes PATCH /api/v1/nodes/" + p.name,
		"Kubernetes PATCH /api/v1/nodes/" + p.name + "/status",
	} {
		if !slices.Contains(writes, want) {
			t.Errorf("%s is not among what a fresh node takes: %v", want, writes)
		}
	}
	p.runReady()
	p.onlyHost()
	p.wantHost()
}

func TestRetirementKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.settle(p.agent())
	p.retire(true)
	if writes := p.killAtEachWrite(); len(writes) != 4 {
		t.Errorf("label, certificate, Secret and condition are 4 changes, not %v", writes)
	}
	p.wantCondition(corev1.ConditionFalse, infrav1.LXDHostRetiredReason)
	p.wantLabel(false)
	if trusted := p.trusted(); p.secret() != nil || len(trusted) > 0 {
		t.Errorf("the Secret is there: %v, and LXD trusts %v", p.secret() != nil, trusted)
	}
	p.onlyHost()

	p.retire(false)
	if writes := p.killAtEachWrite(); len(writes) == 0 {
		t.Error("nothing was changed to come back")
	}
	p.onlyHost()
	p.wantHost()
}

func TestReplacementOfTheKeyPairKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.settle(p.agent())
	p.patchSecret(`{"data":{"tls.crt":"Z29uZQ=="}}`)
	writes := p.killAtEachWrite()
	for _, want := range []string{"LXD POST /1.0/certificates", fmt.Sprintf("MAAS PUT /MAAS/api/2.0/vm-hosts/%d/", p.onlyHost().ID)} {
		if !slices.Contains(writes, want) {
			t.Errorf("%s is not among %v", want, writes)
		}
	}
	p.wantHost()
}

func TestProgram(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	running := p.start()
	p.await("the initializer is ready", func(context.Context) bool { return p.ready() })
	if status, _ := p.get("health", "healthz"); status != http.StatusOK {
		t.Errorf("/healthz returns %d", status)
	}
	for _, want := range []string{
		`capmaas_lxd_initializer_passes_total{result="ok"}`, `capmaas_lxd_initializer_step_ok{step="register"} 1`, "capmaas_lxd_initializer_last_success_timestamp_seconds",
		"capmaas_lxd_initializer_pass_duration_seconds_count", "capmaas_lxd_initializer_host_cores", "capmaas_lxd_initializer_host_memory_bytes", "capmaas_maas_requests_total",
	} {
		// A pass is counted a moment after it made the initializer ready, and the next one forgets the steps until it
		// has taken them.
		p.await("the metrics have "+want, func(context.Context) bool {
			_, metrics := p.get("metrics", "metrics")
			return strings.Contains(metrics, want)
		})
	}
	// It repairs by itself, in the pass after the interval.
	p.removeTrust()
	p.await("LXD trusts the key pair again", func(context.Context) bool { return len(p.trusted()) == 1 })
	p.retire(true)
	p.await("the node is retired", func(context.Context) bool { return p.condition().Reason == infrav1.LXDHostRetiredReason })
	p.must(running.Stop(eventually.Limit))
	if code := running.ExitCode(); code != 0 {
		t.Errorf("after SIGTERM the exit code is %d", code)
	}
	log, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{apiKey, "hush", "PRIVATE KEY"} {
		if bytes.Contains(log, []byte(secret)) {
			t.Error("the log holds a secret")
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	kubeconfig := (&gate{}).kubeconfig(&testNode{bed: &bed{t: t}})
	for _, c := range []struct {
		name string
		args []string
		want int
		says string
	}{
		{"version", []string{"--version"}, 0, version},
		{"help", []string{"--help"}, 0, "--node-name"},
		{"no such flag", []string{"--nonsense"}, 2, "nonsense"},
		{"settings", []string{"--storage-size=0"}, 2, "NODE_NAME"},
		{
			"address in use",
			[]string{"--node-name=node", "--maas-endpoint=http://127.0.0.1/MAAS", "--health-addr=" + listener.Addr().String(), "--metrics-addr=127.0.0.1:0"}, 1,
			listener.Addr().String(),
		},
	} {
		log := filepath.Join(t.TempDir(), "log")
		running, err := process.Start(process.Spec{
			Name: c.name, Path: binary, Args: c.args, Env: []string{"KUBECONFIG=" + kubeconfig, "MAAS_API_KEY=a:b:c"}, LogFile: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-running.Done():
		case <-time.After(eventually.Limit):
			t.Errorf("%s: it does not end", c.name)
			_ = running.Kill()
		}
		output, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if code := running.ExitCode(); code != c.want || !bytes.Contains(output, []byte(c.says)) {
			t.Errorf("%s: the exit code is %d, want %d: %s", c.name, code, c.want, output)
		}
	}
}

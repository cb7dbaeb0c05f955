// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

const (
	project   = "capmaas"
	elsewhere = "elsewhere"
	pool      = "default"
	address   = "127.0.0.1:8443" // in the node's own network
)

var (
	ours   = Marks{Owner: "owner1", Machine: "machine1", Management: "management1"}
	theirs = Marks{Owner: "owner2", Machine: "machine1", Management: "management1"}
)

// bed is a real LXD with a project, and a client whose certificate is for that project only. A proxy is between.
type bed struct {
	t       *testing.T
	daemon  *lxdbed.Daemon
	all     lxd.InstanceServer // by the socket
	server  lxd.InstanceServer // the same, in the project
	between *proxy
	// direct and options lead to LXD and to the proxy.
	direct, options Options
	host            *Host
	// aside is what the test itself asks, beside the proxy. uploaded is done when LXD has the image of spec.
	aside    *Host
	uploaded *sync.Once
}

func newBed(t *testing.T) *bed {
	t.Helper()
	t.Parallel()
	return anotherBed(t)
}

// anotherBed is a further one in a test.
func anotherBed(t *testing.T) *bed {
	t.Helper()
	return bedOf(t, lxdbed.Options{})
}

// bedOf is one with a certain LXD.
func bedOf(t *testing.T, o lxdbed.Options) *bed {
	t.Helper()
	b := &bed{t: t, daemon: lxdtest.Start(t, o), uploaded: &sync.Once{}}
	b.all = lxdtest.Connect(t, b.daemon.Socket())
	b.server = b.all.UseProject(project)
	b.must(b.all.CreateStoragePool(api.StoragePoolsPost{Name: pool, Driver: "dir"}))
	for _, name := range []string{project, elsewhere} {
		own := api.ProjectPut{Config: map[string]string{"features.images": "true"}}
		b.must(b.all.CreateProject(api.ProjectsPost{Name: name, ProjectPut: own}))
	}
	settings, etag, err := b.all.GetServer()
	b.must(err)
	put := settings.Writable()
	put.Config["core.https_address"] = address
	b.must(b.all.UpdateServer(put, etag))
	keys := newKeys(t)
	node, err := lxdnode.Connect(t.Context(), b.daemon.Socket())
	b.must(err)
	_, err = node.Trust(t.Context(), "capmaas", project, keys.Certificate)
	b.must(err)
	b.direct = Options{
		Address: address, ServerCertificate: []byte(settings.Environment.Certificate), ClientCertificate: keys.Certificate, ClientKey: keys.Key,
		Project: project, Dial: b.daemon.Dial,
	}
	b.between = startProxy(t, b.direct)
	b.options = b.direct
	b.options.Address, b.options.ServerCertificate, b.options.Dial = b.between.Address, b.between.Certificate, nil
	b.host, b.aside = b.connect(b.options), b.connect(b.direct)
	return b
}

// in is the bed for a subtest.
func (b *bed) in(t *testing.T) *bed {
	c := *b
	c.t = t
	return &c
}

// eventually repeats what LXD may be too busy for: it refuses one change of a VM during another.
func (b *bed) eventually(do func() error) {
	b.t.Helper()
	eventually.Succeeds(b.t, "LXD does it", func(context.Context) error { return do() })
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) connect(o Options) *Host {
	b.t.Helper()
	h, err := connect(b.t.Context(), o, newCircuit())
	b.must(err)
	b.t.Cleanup(h.Close)
	return h
}

// spec is a small VM.
func spec(name string) Spec {
	return Spec{
		Name: name, Marks: ours, MAC: DeriveMAC(ours.Owner, name), Cores: 1, MemoryMiB: 256,
		Root: Disk{Pool: pool, Bytes: 64 << 20}, Bridge: "br0", Overcommit: Overcommit{Cores: 100, Memory: 100},
		Image: tiny().Fingerprint,
	}
}

// seen is what LXD has, with the image of spec.
func (b *bed) seen() Reading {
	b.t.Helper()
	b.uploaded.Do(func() { b.must(b.aside.Upload(b.t.Context(), "of-specs", tiny(), ignore)) })
	seen, err := b.aside.read(b.t.Context())
	b.must(err)
	return seen
}

// clone makes a VM by what LXD has.
func (b *bed) clone(h *Host, s Spec) error {
	b.t.Helper()
	return h.Clone(b.t.Context(), s, b.seen())
}

func (b *bed) create(s Spec) *api.Instance {
	b.t.Helper()
	b.must(b.clone(b.host, s))
	b.must(b.host.Find(b.t.Context(), s.Name, s.Marks))
	return b.instance(s.Name)
}

// instance is one of the project as LXD has it, or nil.
func (b *bed) instance(name string) *api.Instance {
	b.t.Helper()
	found, _, err := b.server.GetInstance(name)
	if isNotFound(err) {
		return nil
	}
	b.must(err)
	return found
}

// foreign makes a VM with any configuration in the project.
func (b *bed) foreign(server lxd.InstanceServer, name string, config map[string]string) {
	b.t.Helper()
	s := spec(name)
	request := s.request(Bridge{Name: "br0"})
	request.Config, request.Source = config, api.InstanceSource{Type: api.SourceTypeNone}
	delete(request.Devices, seedDevice)
	request.Devices[nicDevice]["hwaddr"] = DeriveMAC("foreign", name).String()
	operation, err := server.CreateInstance(request.InstancesPost)
	lxdtest.Finish(b.t, operation, err)
}

// volumes are the further disks in the pool.
func (b *bed) volumes() (names []string) {
	b.t.Helper()
	all, err := b.server.GetStoragePoolVolumes(pool)
	b.must(err)
	for _, volume := range all {
		if volume.Type == customVolume {
			names = append(names, volume.Name)
		}
	}
	slices.Sort(names)
	return names
}

func wantKind(t *testing.T, err error, want Kind) {
	t.Helper()
	if KindOf(err) != want {
		t.Errorf("the error is of the kind %q, want %q: %v", KindOf(err), want, err)
	}
}

func newKeys(t *testing.T) lxdnode.Keys {
	t.Helper()
	keys, err := lxdnode.NewKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// middleware is put between a client and LXD.
type middleware = lxdtest.Middleware

// proxy leads to LXD, through whatever a test puts in between.
type proxy struct {
	lxdtest.Proxy

	mu     sync.Mutex
	change middleware
	calls  []string
}

func startProxy(t *testing.T, upstream Options) *proxy {
	t.Helper()
	secure, err := upstream.security()
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	p.Proxy = lxdtest.StartProxy(t, newTransport(upstream.Dial, secure, newCircuit()).inner, upstream.Address, lxdtest.NewIdentity(t), func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.with(lxd, r).ServeHTTP(w, r) })
	})
	return p
}

func (p *proxy) with(forward http.Handler, r *http.Request) http.Handler {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, r.Method+" "+r.URL.Path)
	if p.change == nil {
		return forward
	}
	return p.change(forward)
}

// set replaces the middleware; nil passes everything.
func (p *proxy) set(change middleware) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

// during returns the calls while do runs.
func (p *proxy) during(do func()) []string {
	p.mu.Lock()
	p.calls = nil
	p.mu.Unlock()
	do()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

func isWait(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/wait") }

func cut() { panic(http.ErrAbortHandler) }

type interference func(lxd http.Handler, w http.ResponseWriter, r *http.Request)

// atNth calls do instead of forwarding the n-th of certain requests, counted from 1. With thenDown, no request after it
// passes, as if the caller had died there.
func atNth(which func(*http.Request) bool, n int, thenDown bool, do interference) (change middleware, seen func() int) {
	var mu sync.Mutex
	count := 0
	change = func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			past := count >= n
			if which(r) {
				count++
			}
			now := !past && count == n
			mu.Unlock()
			switch {
			case now:
				do(lxd, w, r)
			case past && thenDown:
				cut()
			default:
				lxd.ServeHTTP(w, r)
			}
		})
	}
	return change, func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// cutBefore loses the request, cutAfter loses LXD's response to it.
func cutBefore(http.Handler, http.ResponseWriter, *http.Request) { cut() }

func cutAfter(lxd http.Handler, _ http.ResponseWriter, r *http.Request) {
	lxd.ServeHTTP(httptest.NewRecorder(), r)
	cut()
}

// forgetting lets the first operation end, calls do, and then LXD has forgotten that operation.
func forgetting(do func()) (change middleware, seen func() int) {
	var mu sync.Mutex
	forgotten := ""
	change = func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			operation := strings.TrimSuffix(r.URL.Path, "/wait")
			mu.Lock()
			first := forgotten == "" && isWait(r)
			if first {
				forgotten = operation
			}
			isIt := forgotten == operation
			mu.Unlock()
			if first {
				lxd.ServeHTTP(httptest.NewRecorder(), r)
				do()
			}
			if isIt {
				answer(w, http.StatusNotFound, "Operation not found")
				return
			}
			lxd.ServeHTTP(w, r)
		})
	}
	return change, func() int {
		mu.Lock()
		defer mu.Unlock()
		return min(len(forgotten), 1)
	}
}

// answer writes a response in LXD's form.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.ResponseRaw{Type: api.ErrorResponse, Code: status, Error: text})
}

// rewrite alters the object that LXD returns for a path.
func rewrite(path string, change func(metadata map[string]any)) middleware {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				lxd.ServeHTTP(w, r)
				return
			}
			recorder := httptest.NewRecorder()
			lxd.ServeHTTP(recorder, r)
			var body map[string]any
			if err := json.NewDecoder(recorder.Body).Decode(&body); err != nil {
				cut()
			}
			change(body["metadata"].(map[string]any))
			w.WriteHeader(recorder.Code)
			_ = json.NewEncoder(w).Encode(body)
		})
	}
}

// silent never responds.
func silent(http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server watches the connection from then on
		<-r.Context().Done()
		cut()
	})
}

func wantDeadline(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v, want a deadline", err)
	}
}

// short is a timeout for calls that never return.
const short = 200 * time.Millisecond

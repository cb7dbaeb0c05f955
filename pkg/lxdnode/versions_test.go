// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// metadata changes what LXD reports about itself.
func metadata(change func(server map[string]any)) middleware {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/1.0" || isWrite(r) {
				lxd.ServeHTTP(w, r)
				return
			}
			rewrite(lxd, w, r, func(status int, body map[string]any) int {
				if server, ok := body["metadata"].(map[string]any); ok {
					change(server)
				}
				return status
			})
		})
	}
}

// gone is what LXD 6 no longer accepts, and what its trust by token needs.
var gone = regexp.MustCompile(`core\.trust_password|"(password|trust_token)":"[^"]|"token":true`)

// lxd6 makes LXD 5.0 respond like 6.2 where they differ: what it reports about itself, the missing trust password, and
// the texts for objects that exist or are missing. Requests that 6.2 would not understand fail the test.
func lxd6(t *testing.T) middleware {
	about := metadata(func(server map[string]any) {
		environment := server["environment"].(map[string]any)
		environment["server_version"] = "6.2"
		environment["instance_types"] = []string{"container", "virtual-machine"}
		server["api_extensions"] = append(server["api_extensions"].([]any), "explicit_trust_token", "server_instance_type_info")
	})
	words := strings.NewReplacer("The storage pool already exists: The record already exists", `Storage pool already exists`,
		"The profile already exists", `Profile already exists`, "not found", "not be found")
	return func(lxd http.Handler) http.Handler {
		lxd = about(lxd)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isWrite(r) && r.Header.Get("Upgrade") != "" { // events
				lxd.ServeHTTP(w, r)
				return
			}
			sent, err := io.ReadAll(r.Body)
			if err != nil {
				cut()
			}
			if found := gone.Find(sent); found != nil {
				t.Errorf("%s %s sends %s", r.Method, r.URL, found)
				answer(w, http.StatusNotImplemented, "Password authentication is no longer supported, please update your client")
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(sent))
			rewrite(lxd, w, r, func(status int, body map[string]any) int {
				if text, ok := body["error"].(string); ok {
					body["error"] = words.Replace(text)
				}
				return status
			})
		})
	}
}

func TestLXD6IsPreparedTheSameWay(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	between.set(lxd6(t))
	n := connectNode(t, between.socket)
	config := goodConfig()
	server, err := n.getServer(t.Context(), StepServer, "reading it")
	if err != nil || server.Environment.ServerVersion != "6.2" {
		t.Fatalf("got %+v, %v", server, err)
	}
	keys := newKeys(t, "node")
	writes := writesDuring(t, between.socket, func() {
		mustPrepare(t, n, config, Changed)
		if changed, err := n.Trust(t.Context(), "node", "default", keys.Certificate); err != nil || !changed {
			t.Errorf("Trust = %t, %v", changed, err)
		}
	})
	if len(writes) == 0 {
		t.Error("no events came through")
	}
	writes = writesDuring(t, between.socket, func() {
		mustPrepare(t, n, config, OK)
		if changed, err := n.Trust(t.Context(), "node", "default", keys.Certificate); err != nil || changed {
			t.Errorf("the second Trust = %t, %v", changed, err)
		}
	})
	if len(writes) > 0 {
		t.Errorf("the second Prepare wrote: %v", writes)
	}
	if !trustedOverHTTPS(t, d, keys) {
		t.Error("the client is not trusted")
	}
	if err := n.Distrust(t.Context(), called("node"), nil); err != nil || trustedOverHTTPS(t, d, keys) {
		t.Errorf("Distrust = %v, or the client is still trusted", err)
	}
}

// ZFS and LVM need what few test machines have: here btrfs plays their part, under their names.
func TestPoolsOfEveryDriverAreMadeTheSameWay(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	n := &Node{socket: between.socket}
	for _, driver := range []string{"zfs", "lvm"} {
		t.Run(driver, func(t *testing.T) {
			between.set(func(lxd http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					sent, err := io.ReadAll(r.Body)
					if err != nil {
						cut()
					}
					sent = bytes.ReplaceAll(sent, []byte(`"driver":"`+driver+`"`), []byte(`"driver":"btrfs"`))
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
					rewrite(lxd, w, r, func(status int, body map[string]any) int {
						rename(body, "btrfs", driver)
						return status
					})
				})
			})
			config := named(driver)
			config.StorageBackend, config.StorageSizeGB = driver, 2
			for _, want := range []State{Changed, OK} {
				report, err := n.Prepare(t.Context(), config)
				if err != nil || states(report)[StepPool] != want {
					t.Fatalf("got %+v, %v", report, err)
				}
			}
			pool, _, err := lxdtest.Connect(t, d.Socket()).GetStoragePool(config.StoragePool)
			if err != nil || pool.Config["size"] != "2GB" {
				t.Errorf("got %+v, %v", pool, err)
			}
		})
	}
}

// rename replaces a word wherever it is a whole value of a response.
func rename(value any, from, to string) any {
	switch v := value.(type) {
	case string:
		if v == from {
			return to
		}
	case []any:
		for i := range v {
			v[i] = rename(v[i], from, to)
		}
	case map[string]any:
		for key := range v {
			v[key] = rename(v[key], from, to)
		}
	}
	return value
}

// Objects that another client makes between the check and the write are found by checking again. The text and number of
// LXD's refusal differ between objects and versions.
func TestLostRacesAreCheckedAgain(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	n := &Node{socket: between.socket}
	keys := newKeys(t, "node")
	for name, status := range map[string]int{"as": 0, "b": http.StatusBadRequest, "c": http.StatusConflict, "i": http.StatusInternalServerError} {
		t.Run("answered "+http.StatusText(status), func(t *testing.T) {
			var refused atomic.Int32
			between.set(func(lxd http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodPost {
						lxd.ServeHTTP(w, r)
						return
					}
					sent, err := io.ReadAll(r.Body)
					if err != nil {
						cut()
					}
					other := r.Clone(r.Context())
					other.Body = io.NopCloser(bytes.NewReader(sent))
					isOperation := false
					rewrite(lxd, discard{}, other, func(status int, body map[string]any) int {
						if id, is := body["operation"].(string); is && status == http.StatusAccepted {
							isOperation = true
							wait := httptest.NewRequestWithContext(r.Context(), http.MethodGet, id+"/wait", nil)
							rewrite(lxd, discard{}, wait, func(status int, _ map[string]any) int { return status })
						}
						return status
					})
					r.Body = io.NopCloser(bytes.NewReader(sent))
					rewrite(lxd, w, r, func(got int, body map[string]any) int {
						if got < http.StatusBadRequest && !isOperation { // An operation is refused at its end.
							t.Errorf("LXD made %s twice", r.URL)
							return got
						}
						refused.Add(1)
						if status == 0 {
							return got
						}
						body["error"], body["error_code"] = "something went wrong", status
						return status
					})
				})
			})
			report, err := n.Prepare(t.Context(), everything("race"+name))
			if err != nil || !ready(report) {
				t.Errorf("got %+v, %v", report, err)
			}
			if _, err := n.Trust(t.Context(), "node", "default", keys.Certificate); err != nil {
				t.Error(err)
			}
			if refused.Load() < 4 {
				t.Errorf("only %d races were lost", refused.Load())
			}
		})
	}
}

// discard is a response that is not read.
type discard struct{}

func (discard) Header() http.Header            { return http.Header{} }
func (discard) Write(data []byte) (int, error) { return len(data), nil }
func (discard) WriteHeader(int)                {}

func TestServerThatCannotBeAVMHostIsLeftAlone(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	n := &Node{socket: between.socket}
	environment := func(key string, value any) func(map[string]any) {
		return func(server map[string]any) { server["environment"].(map[string]any)[key] = value }
	}
	for name, change := range map[string]func(map[string]any){
		"it runs no VMs":     environment("driver", "lxc"),
		"it is in a cluster": environment("server_clustered", true),
		"it is too old":      func(server map[string]any) { server["api_extensions"] = []string{"projects", "etag"} },
	} {
		t.Run(name, func(t *testing.T) {
			between.set(metadata(change))
			writes := writesDuring(t, d.Socket(), func() {
				report, err := n.Prepare(t.Context(), goodConfig())
				if e := stepError(t, err, StepServer); !e.Permanent || e.Remedy == "" {
					t.Errorf("got %#v", e)
				}
				wantStates(t, report, map[string]State{StepServer: Failed})
			})
			if len(writes) > 0 {
				t.Errorf("it was changed all the same: %v", writes)
			}
		})
	}
}

func TestWritesThatCollideAreDoneAgain(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	client := lxdtest.Connect(t, d.Socket())
	between := startProxy(t, d.Socket())
	n := &Node{socket: between.socket}
	// Another client writes whenever the step is about to, twice.
	var collisions atomic.Int32
	between.set(func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && collisions.Add(1) <= 2 {
				setConfig(t, client, "core.shutdown_timeout", strconv.Itoa(int(collisions.Load())))
			}
			lxd.ServeHTTP(w, r)
		})
	})
	mustPrepare(t, n, goodConfig(), Changed)
	server, _, err := client.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	if server.Config["core.shutdown_timeout"] != "2" || server.Config[listenKey] != "10.0.2.15:8443" {
		t.Errorf("one of the writes is lost: %v", server.Config)
	}
	if collisions.Load() < 4 {
		t.Errorf("there were %d writes, too few for two collisions", collisions.Load())
	}

	// When it never ends, it is given up for now.
	config := goodConfig()
	config.ListenAddress = "10.0.2.15:8444"
	between.set(func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				answer(w, http.StatusPreconditionFailed, "ETag doesn't match")
				return
			}
			lxd.ServeHTTP(w, r)
		})
	})
	_, err = n.Prepare(t.Context(), config)
	if e := stepError(t, err, StepListen); e.Permanent || unanswered(err) {
		t.Errorf("got %#v", e)
	}
}

func TestLXDThatHangsOrStartsIsAPassingError(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	n := &Node{socket: between.socket}
	between.set(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	report, err := n.Prepare(ctx, goodConfig())
	if e := stepError(t, err, StepServer); e.Permanent || !unanswered(err) || len(report) != 1 {
		t.Errorf("got %#v, %+v", e, report)
	}
	if _, err := n.Addresses(ctx); stepError(t, err, StepServer).Permanent {
		t.Errorf("Addresses: %v", err)
	}
	between.set(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusServiceUnavailable, "LXD daemon is starting up")
		})
	})
	if _, err := Connect(t.Context(), between.socket); stepError(t, err, StepConnect).Permanent ||
		!api.StatusErrorCheck(err, http.StatusServiceUnavailable) {
		t.Errorf("Connect: %v", err)
	}
}

func TestConnectRefusesASocketWhereItIsNotTrusted(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	between := startProxy(t, d.Socket())
	between.set(metadata(func(server map[string]any) { server["auth"] = "untrusted" }))
	if _, err := Connect(t.Context(), between.socket); !stepError(t, err, StepConnect).Permanent {
		t.Errorf("got %v", err)
	}
}

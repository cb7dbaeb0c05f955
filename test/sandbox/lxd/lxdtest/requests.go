// SPDX-License-Identifier: Apache-2.0

package lxdtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// newestForMAAS is the newest LXD that MAAS makes VMs on.
const newestForMAAS = "6.6"

// ForMAAS returns the version to play by daemons that MAAS is to use: the one that all play, or the newest that MAAS
// takes.
func ForMAAS() string {
	if version := os.Getenv(lxd.PlaysVariable); lxdapi.OfVersion(version).TakesMAAS() {
		return version
	}
	return newestForMAAS
}

// RequireForMAAS skips a test of VM hosts of MAAS with a daemon that MAAS can't use: a newer one that CAPMAAS_LXD names.
func RequireForMAAS(t testing.TB, daemon *lxd.Daemon) {
	t.Helper()
	server, _, err := Connect(t, daemon.Socket()).GetServer()
	if err != nil {
		t.Fatal(err)
	}
	if why := lxdapi.TraitsOf(server).NotForMAAS(); why != "" {
		t.Skip(why)
	}
}

// Requests records what is sent to an LXD, as far as lxdapi.Uses has it.
type Requests struct {
	mu   sync.Mutex
	seen map[sent]bool
}

// sent is an endpoint with a method, or a key.
type sent struct {
	kind         lxdapi.Kind
	name, method string
}

// Record is a Middleware that records each request, and sends it on.
func (r *Requests) Record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body := map[string]any{}
		if kind := request.Header.Get("Content-Type"); strings.HasPrefix(kind, "application/json") {
			content, err := io.ReadAll(request.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			request.Body = io.NopCloser(bytes.NewReader(content))
			_ = json.Unmarshal(content, &body) // LXD says what is wrong with it.
		}
		r.see(request.Method, request.URL.Path, body)
		next.ServeHTTP(w, request)
	})
}

// configs have the kinds of the keys in the field config of what is sent, by the first part of the path.
var configs = map[string]lxdapi.Kind{
	"": lxdapi.ServerKey, "instances": lxdapi.InstanceKey, "profiles": lxdapi.InstanceKey, "projects": lxdapi.ProjectKey,
	"storage-pools": lxdapi.PoolKey, "networks": lxdapi.NetworkKey,
}

func (r *Requests) see(method, path string, body map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[sent]bool{}
	}
	path = strings.Trim(strings.TrimPrefix(path, "/1.0"), "/")
	r.seen[sent{lxdapi.Endpoint, path, method}] = true
	first, rest, _ := strings.Cut(path, "/")
	kind := configs[first]
	if strings.Contains(rest, "volumes/") {
		kind = lxdapi.VolumeKey
	}
	config, _ := body["config"].(map[string]any)
	for key := range config {
		r.seen[sent{kind: kind, name: key}] = true
	}
	devices, _ := body["devices"].(map[string]any)
	for _, each := range devices {
		device, _ := each.(map[string]any)
		kind, isOurs := map[any]lxdapi.Kind{"disk": lxdapi.DiskKey, "nic": lxdapi.NICKey}[device["type"]]
		for key := range device {
			if isOurs && key != "type" {
				r.seen[sent{kind: kind, name: key}] = true
			}
		}
	}
}

// Check fails the test for what was sent that lxdapi.Uses lacks, or that it has as refused by this LXD. It returns
// those of the uses that were sent.
func (r *Requests) Check(t testing.TB, server *api.Server) []lxdapi.Use {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	traits := lxdapi.TraitsOf(server)
	found := map[int]bool{}
	for each := range r.seen {
		at := slices.IndexFunc(lxdapi.Uses, func(u lxdapi.Use) bool { return u.Matches(each.kind, each.name) })
		if at < 0 {
			t.Errorf("the %s %q %s is sent to LXD, and lxdapi.Uses lacks it", each.kind, each.name, each.method)
			continue
		}
		use := &lxdapi.Uses[at]
		if each.kind == lxdapi.Endpoint && !slices.Contains(strings.Fields(use.Methods), each.method) {
			t.Errorf("%s %s is sent to LXD, and lxdapi.Uses has only %s of it", each.method, each.name, use.Methods)
		}
		if !traits.Takes(use) {
			t.Errorf("the %s %s is sent to LXD %s, which does not take it", use.Kind, use.Name, traits.Version)
		}
		found[at] = true
	}
	var uses []lxdapi.Use
	for i := range lxdapi.Uses {
		if found[i] {
			uses = append(uses, lxdapi.Uses[i])
		}
	}
	return uses
}

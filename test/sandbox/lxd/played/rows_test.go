// SPDX-License-Identifier: Apache-2.0

package played_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/played"
)

// A difference that no test needs is not worth its code.
func TestEveryRowIsNeeded(t *testing.T) {
	t.Parallel()
	for _, row := range played.Rows {
		dir, name, _ := strings.Cut(row.Needs, ".")
		files, err := filepath.Glob(filepath.Join("../../../..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(files, func(file string) bool {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(parsed.Decls, func(d ast.Decl) bool { f, ok := d.(*ast.FuncDecl); return ok && f.Name.Name == name })
		})
		if !found {
			t.Errorf("row %s: there is no test %q", row.ID, row.Needs)
		}
	}
}

// versions are those between which something changed.
var versions = []string{"5.0.2", "5.21.0", "5.21.3", "5.21.4", "5.21.5", "5.21.7", "6.1", "6.5", "6.6", "6.7", "6.8", "6.9"}

// bed is an LXD with a project p that the key is for, another one, and a pool.
type bed struct {
	t      *testing.T
	daemon *lxd.Daemon
	keys   lxdnode.Keys
	n      int // of names
}

const address = "127.0.0.1:8443"

func newBed(t *testing.T) *bed {
	t.Helper()
	if os.Getenv("CAPMAAS_LXD") != "" {
		t.Skip("the rows are differences from Debian 12's LXD, and this is another one")
	}
	b := &bed{t: t, daemon: lxdtest.Start(t, lxd.Options{Plays: "5.0.2"})}
	b.keys = b.newKeys()
	b.must("POST /1.0/storage-pools", `{"name":"default","driver":"dir"}`)
	b.must("POST /1.0/projects", `{"name":"p","config":{"features.images":"true"}}`)
	b.must("PATCH /1.0", fmt.Sprintf(`{"config":{"core.https_address":%q}}`, address))
	b.must("POST /1.0/certificates", b.certificate("key", b.keys, `"restricted":true,"projects":["p"]`))
	return b
}

func (b *bed) newKeys() lxdnode.Keys {
	b.t.Helper()
	keys, err := lxdnode.NewKeys("key")
	if err != nil {
		b.t.Fatal(err)
	}
	return keys
}

func (b *bed) certificate(name string, keys lxdnode.Keys, more string) string {
	block, _ := pem.Decode(keys.Certificate)
	return fmt.Sprintf(`{"name":%q,"type":"client","certificate":%q,%s}`, name, base64.StdEncoding.EncodeToString(block.Bytes), more)
}

// name is one that nothing has.
func (b *bed) name() string { b.n++; return fmt.Sprintf("x%d", b.n) }

// by asks as a client with keys, or by the socket. The request is a method and a path.
func (b *bed) by(keys *lxdnode.Keys, request, body string) (status int, got map[string]any, header http.Header) {
	b.t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} // it is the test's own
	scheme := "http"
	if keys != nil {
		scheme = "https"
		pair, err := tls.X509KeyPair(keys.Certificate, keys.Key)
		if err != nil {
			b.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: config,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if keys == nil {
				return new(net.Dialer).DialContext(ctx, "unix", b.daemon.Socket())
			}
			return b.daemon.Dial(ctx, "tcp", address)
		},
	}}
	method, path, _ := strings.Cut(request, " ")
	sent, err := http.NewRequestWithContext(b.t.Context(), method, scheme+"://lxd"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := client.Do(sent)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(content, &got)
	}
	if err != nil {
		b.t.Fatalf("%s: %v: %s", request, err, content)
	}
	return response.StatusCode, got, response.Header
}

// ask asks by the socket, and returns the status and the metadata.
func (b *bed) ask(request, body string) (status int, metadata map[string]any) {
	b.t.Helper()
	status, got, _ := b.by(nil, request, body)
	metadata, _ = got["metadata"].(map[string]any)
	return status, metadata
}

// finish asks by the socket, waits for the end of an operation, and returns the status and the error.
func (b *bed) finish(request, body string) string {
	b.t.Helper()
	status, got, _ := b.by(nil, request, body)
	text, _ := got["error"].(string)
	if at, _ := got["operation"].(string); at != "" {
		b.by(nil, "GET "+at+"/wait", "")
		_, metadata := b.ask("GET "+at, "")
		text, _ = metadata["err"].(string)
	}
	if text != "" {
		text = " error"
	}
	return fmt.Sprint(status, text)
}

// must is finish of what is done.
func (b *bed) must(request, body string) {
	b.t.Helper()
	if got := b.finish(request, body); strings.HasSuffix(got, "error") {
		b.t.Fatalf("%s: %s", request, got)
	}
}

// vm makes an empty VM.
func (b *bed) vm(name, more string) string {
	b.t.Helper()
	return b.finish("POST /1.0/instances?project=p", vmOf(name, more))
}

func vmOf(name, config string) string {
	return fmt.Sprintf(`{"name":%q,"type":"virtual-machine","source":{"type":"none"},"profiles":[],"config":{"limits.memory":"64MiB"%s},
		"devices":{"root":{"type":"disk","path":"/","pool":"default","size":"10MiB"}}}`, name, config)
}

// running is a VM that runs.
func (b *bed) running() (name string) {
	b.t.Helper()
	name = b.name()
	b.vm(name, "")
	b.must("PUT /1.0/instances/"+name+"/state?project=p", `{"action":"start"}`)
	return name
}

// wait returns what comes of a wait for what a request began.
func (b *bed) wait(request, body, query string) string {
	b.t.Helper()
	_, got, _ := b.by(nil, request, body)
	at, _ := got["operation"].(string)
	status, got, _ := b.by(nil, "GET "+at+"/wait"+query, "")
	metadata, _ := got["metadata"].(map[string]any)
	_, truth := b.ask("GET "+at, "")
	return fmt.Sprint(status, " ", got["type"], " ", got["error_code"], " ", metadata["status"], ", it is ", truth["status"])
}

func keysOf(object any, prefix string) (keys []string) {
	config, _ := object.(map[string]any)
	for key := range config {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// rowTests are what is asked, by row, and what came of it before and since.
var rowTests = map[string]struct {
	ask           func(b *bed) string
	before, since string
}{
	"texts": {func(b *bed) string {
		_, got, _ := b.by(nil, "GET /1.0/instances/none", "")
		return fmt.Sprint(got["error"])
	},
		"Instance not found", "Not Found"},
	"wait failed": {func(b *bed) string {
		return b.wait("POST /1.0/instances?project=p", `{"name":"`+b.name()+`","type":"virtual-machine","source":{"type":"image","fingerprint":"00"}}`, "")
	}, "200 sync 0 Failure, it is Failure", "200 error 500 <nil>, it is Failure"},
	"wait ended": {func(b *bed) string {
		return b.wait("PUT /1.0/instances/"+b.running()+"/state?project=p", `{"action":"stop","timeout":3}`, "?timeout=0")
	}, "200 sync 0 Running, it is Running", "200 error 500 <nil>, it is Running"},
	"err_code": {func(b *bed) string {
		_, got, _ := b.by(nil, "DELETE /1.0/storage-pools/default/volumes/custom/"+b.volume(), "")
		b.by(nil, fmt.Sprint("GET ", got["operation"], "/wait"), "")
		_, metadata := b.ask(fmt.Sprint("GET ", got["operation"]), "")
		return fmt.Sprint(metadata["status"], " ", metadata["err_code"])
	}, "Success <nil>", "Success 0"},
	"resources": {func(b *bed) string { return b.about("POST /1.0/instances?project=p") },
		"map[instances:[/1.0/instances/x]] <nil>", "map[instances:[/1.0/instances/x?project=p]] <nil>"},
	"made": {func(b *bed) string { return b.about("POST /1.0/instances?project=p") },
		"map[instances:[/1.0/instances/x?project=p]] <nil>", "map[project:[/1.0/projects/p]] map[entity_url:/1.0/instances/x?project=p]"},
	"entity_url": {func(b *bed) string {
		name := b.name()
		b.vm(name, "")
		return strings.ReplaceAll(b.about("DELETE /1.0/instances/"+name+"?project=p"), name, "x")
	}, "map[instances:[/1.0/instances/x?project=p]] <nil>", "map[] map[entity_url:/1.0/instances/x?project=p]"},
	"about": {func(b *bed) string {
		keys := b.newKeys()
		_, got, _ := b.by(&keys, "GET /1.0", "")
		metadata := got["metadata"].(map[string]any)
		_, has := metadata["config"]
		_, trusted := b.ask("GET /1.0", "")
		return fmt.Sprint(metadata["auth"], " ", metadata["client_certificate"], " ", has, " ", trusted["environment"].(map[string]any)["server_version"])
	}, "untrusted <nil> false 5.0.2", "untrusted true true 5.21.0"},
	"uuid": {func(b *bed) string {
		_, server := b.ask("GET /1.0", "")
		config := server["config"].(map[string]any)
		all, _ := json.Marshal(map[string]any{"config": config})
		return fmt.Sprint(len(keysOf(config, "volatile")), " ", b.finish("PUT /1.0", string(all)), " ", b.finish("PUT /1.0", `{"config":{"core.https_address":"`+address+`"}}`))
	}, "0 200 200", "1 200 400 error"},
	"address of 6.6": {func(b *bed) string { return b.refusedAddress() },
		"500 error, then " + address + " old", "500 error, then " + address + " new"},
	"address": {func(b *bed) string { return b.refusedAddress() },
		"500 error, then 192.0.2.1:8443 new", "500 error, then " + address + " old"},
	"identities": {func(b *bed) string {
		status, _, _ := b.by(&b.keys, "GET /1.0/auth/identities/current", "")
		return fmt.Sprint(status)
	}, "404", "200"},
	"trust token": {func(b *bed) string {
		_, server := b.ask("GET /1.0", "")
		return fmt.Sprint(slices.Contains(server["api_extensions"].([]any), any("explicit_trust_token")))
	}, "false", "true"},
	"trust password": {func(b *bed) string {
		set := b.finish("PATCH /1.0", `{"config":{"core.trust_password":"sesame"}}`)
		keys := b.newKeys()
		status, _, _ := b.by(&keys, "POST /1.0/certificates", `{"type":"client","name":"`+b.name()+`","password":"sesame"}`)
		return fmt.Sprint(set, ", ", status)
	}, "200, 201", "400 error, 501"},
	"certificate names": {func(b *bed) string {
		return b.finish("POST /1.0/certificates", b.certificate("key", b.newKeys(), `"restricted":true,"projects":["p"]`))
	}, "201", "409 error"},
	"other projects": {func(b *bed) string {
		others, _, _ := b.by(&b.keys, "GET /1.0/images?project=default", "")
		own, _, _ := b.by(&b.keys, "GET /1.0/images?project=p", "")
		return fmt.Sprint(others, " ", own)
	}, "200 200", "403 200"},
	"projects": {func(b *bed) string {
		name := b.name()
		b.must("POST /1.0/projects", `{"name":"`+name+`"}`)
		_, project := b.ask("GET /1.0/projects/"+name, "")
		all, _ := json.Marshal(map[string]any{"config": project["config"]})
		return fmt.Sprint(keysOf(project["config"], "features.storage.b"), " ", b.finish("PUT /1.0/projects/"+name, string(all)))
	}, "[] 200", "[features.storage.buckets] 200"},
	"virtual-machines": {func(b *bed) string {
		vms, _ := b.ask("GET /1.0/virtual-machines", "")
		instances, _ := b.ask("GET /1.0/instances", "")
		return fmt.Sprint(vms, " ", instances)
	}, "200 200", "404 200"},
	"boot.mode": {func(b *bed) string {
		old, fresh := b.name(), b.name()
		made := b.vm(old, `,"security.secureboot":"false"`) + ", " + b.vm(fresh, `,"boot.mode":"uefi-nosecureboot"`)
		_, vm := b.ask("GET /1.0/instances/"+fresh+"?project=p", "")
		patched := b.finish("PATCH /1.0/instances/"+fresh+"?project=p", `{"config":{"security.secureboot":"false"}}`)
		profile := b.finish("POST /1.0/profiles", `{"name":"`+b.name()+`","config":{"security.secureboot":"false"}}`)
		return fmt.Sprint(made, keysOf(vm["config"], "boot."), " ", patched, ", ", profile)
	}, "202, 202 error[] 404 error, 201", "202 error, 202[boot.mode] 500 error, 400 error"},
	"names":       {func(b *bed) string { return b.vm("a.b", "") }, "400 error", "500 error"},
	"taken names": {func(b *bed) string { name := b.name(); return b.vm(name, "") + ", " + b.vm(name, "") }, "202, 202 error", "202, 409 error"},
	"volatile": {func(b *bed) string {
		name := b.running()
		_, vm := b.ask("GET /1.0/instances/"+name+"?project=p", "")
		all, _ := json.Marshal(vm)
		return fmt.Sprint(keysOf(vm["config"], "volatile.uuid."), " ", b.finish("PUT /1.0/instances/"+name+"?project=p", string(all)))
	}, "[] 202", "[volatile.uuid.generation] 202"},
	"agent": {func(b *bed) string {
		name := b.running()
		patched := b.finish("PATCH /1.0/instances/"+name+"?project=p", `{"config":{"user.a":"b"}}`)
		_, vm := b.ask("GET /1.0/instances/"+name+"?project=p", "")
		refused := b.finish("PATCH /1.0/instances/"+name+"?project=p", `{"devices":{"disk":{"type":"disk","path":"/x"}}}`)
		return fmt.Sprint(patched, keysOf(vm["config"], "user."), " ", refused)
	}, "500 error[user.a] 500 error", "200[user.a] 500 error"},
	"hugepages": {func(b *bed) string {
		b.must("PATCH /1.0/projects/p", `{"config":{"features.images":"true","features.profiles":"true","features.storage.volumes":"true","restricted":"true"}}`)
		made := b.vm(b.name(), `,"limits.memory.hugepages":"true"`)
		b.must("PATCH /1.0/projects/p", `{"config":{"features.images":"true","features.profiles":"true","features.storage.volumes":"true","restricted":"false"}}`)
		return made
	}, "500 error", "202"},
	"volumes": {func(b *bed) string {
		name := b.name()
		body := `{"name":"` + name + `","type":"custom"}`
		at := "/1.0/storage-pools/default/volumes/custom"
		own, _, _ := b.by(&b.keys, "POST "+at+"?project=default", `{"name":"`+name+`"}`)
		return strings.Join([]string{b.finish("POST "+at, body), b.finish("POST "+at, body), b.finish("POST /1.0/storage-pools/none/volumes/custom", body),
			b.finish("DELETE "+at+"/"+name, ""), b.finish("DELETE "+at+"/"+name, ""), fmt.Sprint(own)}, ", ")
	}, "200, 409 error, 404 error, 200, 404 error, 403", "202, 409 error, 404 error, 202, 404 error, 403"},
	"profiles": {func(b *bed) string {
		return b.finish("PUT /1.0/profiles/default", `{"description":"`+b.name()+`"}`) + ", " + b.finish("PUT /1.0/profiles/default", `{"config":{"no.key":"x"}}`)
	}, "200, 500 error", "202, 202 error"},
	"project deletion": {func(b *bed) string {
		name := b.name()
		b.must("POST /1.0/projects", `{"name":"`+name+`"}`)
		return b.finish("DELETE /1.0/projects/"+name, "") + ", " + b.finish("DELETE /1.0/projects/"+name, "")
	}, "200, 404 error", "202, 404 error"},
	"pools": {func(b *bed) string {
		name := b.name()
		body := `{"name":"` + name + `","driver":"dir"}`
		refused, _, _ := b.by(&b.keys, "POST /1.0/storage-pools", body)
		all := []string{fmt.Sprint(refused), b.finish("POST /1.0/storage-pools", body), b.finish("POST /1.0/storage-pools", body), b.finish("DELETE /1.0/storage-pools/"+name, "")}
		bridge := `{"name":"` + name + `","type":"bridge","config":{"ipv4.address":"none","ipv6.address":"none"}}`
		all = append(all, b.finish("POST /1.0/networks", bridge), b.finish("POST /1.0/networks", bridge), b.finish("DELETE /1.0/networks/"+name, ""))
		return strings.Join(all, ", ")
	}, "403, 201, 409 error, 200, 201, 400 error, 200", "403, 202, 202 error, 202, 202, 202 error, 202"},
}

// about returns what an operation says of an instance that is made, or was.
func (b *bed) about(request string) string {
	b.t.Helper()
	name := b.name()
	_, got, _ := b.by(nil, request, vmOf(name, ""))
	b.by(nil, fmt.Sprint("GET ", got["operation"], "/wait"), "")
	_, metadata := b.ask(fmt.Sprint("GET ", got["operation"], "?project=p"), "")
	return strings.ReplaceAll(fmt.Sprint(metadata["resources"], " ", metadata["metadata"]), name, "x")
}

// volume makes one, and returns its name.
func (b *bed) volume() (name string) {
	b.t.Helper()
	name = b.name()
	b.must("POST /1.0/storage-pools/default/volumes/custom", `{"name":"`+name+`","type":"custom"}`)
	return name
}

// refusedAddress asks LXD to listen where it can't.
func (b *bed) refusedAddress() string {
	b.t.Helper()
	b.must("PATCH /1.0", `{"config":{"user.mark":"old"}}`)
	got := b.finish("PATCH /1.0", `{"config":{"core.https_address":"192.0.2.1:8443","user.mark":"new"}}`)
	_, server := b.ask("GET /1.0", "")
	config := server["config"].(map[string]any)
	b.must("PATCH /1.0", fmt.Sprintf(`{"config":{"core.https_address":%q}}`, address))
	return fmt.Sprint(got, ", then ", config["core.https_address"], " ", config["user.mark"])
}

// Each row is played from its first version on, and not before.
func TestRows(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	play := func(version string) {
		t.Helper()
		if err := b.daemon.Play(version); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range played.Rows {
		t.Run(row.ID, func(t *testing.T) {
			tc, first, last := rowTests[row.ID], slices.Index(versions, row.Since), slices.Index(versions, row.Until)
			if tc.ask == nil || first < 1 {
				t.Fatalf("the row since %s is not tested", row.Since)
			}
			in := *b
			in.t = t
			want := map[string]string{versions[first-1]: tc.before, row.Since: tc.since}
			if last > 0 {
				want[row.Until], want[versions[last+1]] = tc.since, tc.before
			}
			for version, want := range want {
				play(version)
				if diff := cmp.Diff(want, tc.ask(&in)); diff != "" {
					t.Errorf("LXD %s (-want +got):\n%s", version, diff)
				}
				b.n = in.n
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// afterRefusal is what LXD may have in its configuration after it refused an address: each changes the request that it
// gets all the same, given the address that it had. nil is a request that it does not get.
func afterRefusal() map[string]func(config map[string]any, had string) map[string]any {
	return map[string]func(map[string]any, string) map[string]any{
		"all as sent, as 5.0.2":          func(config map[string]any, _ string) map[string]any { return config },
		"all as before, as 5.21 and 6.7": func(map[string]any, string) map[string]any { return nil },
		"the address as before, as 5.0.3 and 6.6": func(config map[string]any, had string) map[string]any {
			config[listenKey] = had
			return config
		},
	}
}

// refuse plays an LXD that can't listen on some addresses.
func (l *listener) refuse(t *testing.T, kept func(map[string]any, string) map[string]any, addresses ...string) middleware {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isWrite(r) || r.URL.Path != "/1.0" {
				lxd.ServeHTTP(w, r)
				return
			}
			content, err := io.ReadAll(r.Body)
			var put api.ServerPut
			if err == nil {
				err = json.Unmarshal(content, &put)
			}
			had, readErr := readListen(l.direct(t))
			if err != nil || readErr != nil {
				t.Error(err, readErr)
				cut()
			}
			wanted, _ := put.Config[listenKey].(string)
			refused := wanted != had.address && slices.Contains(addresses, wanted)
			if refused {
				if put.Config = kept(put.Config, had.address); put.Config != nil {
					content, _ = json.Marshal(put)
				}
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
			switch {
			case !refused:
				lxd.ServeHTTP(w, r)
				return
			case put.Config != nil:
				lxd.ServeHTTP(httptest.NewRecorder(), r)
			}
			answer(w, http.StatusInternalServerError, "Cannot listen on network HTTPS socket")
		})
	}
}

// direct is a client of LXD itself.
func (l *listener) direct(t *testing.T) *lxdapi.Client {
	client, err := lxdapi.Unix(t.Context(), l.socket)
	if err != nil {
		t.Error(err)
	}
	return client
}

// both puts one middleware before another.
func both(outer, inner middleware) middleware {
	return func(lxd http.Handler) http.Handler { return outer(inner(lxd)) }
}

// begin gives LXD an address that was set here, or none.
func (l *listener) begin(t *testing.T, address string) {
	t.Helper()
	now, err := readListen(l.direct(t))
	if err == nil {
		_, err = now.write(l.direct(t), address, address)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listen runs the step alone, for an address.
func (l *listener) listen(t *testing.T, socket, address string) (Check, error) {
	t.Helper()
	p := &pass{Config: Config{ListenAddress: address}, write: true}
	return (&Node{socket: socket}).take(t.Context(), p, step{StepListen, "", callTimeout, (*pass).ensureListen})
}

// wantSet sets an address.
func (l *listener) wantSet(t *testing.T, address string, want ...State) {
	t.Helper()
	if check, err := l.listen(t, l.socket, address); err != nil || !slices.Contains(want, check.State) {
		t.Errorf("got %+v, %v", check, err)
	}
	l.wantOwn(t, address)
}

// wantRefused wants an LXD behind a socket to refuse an address.
func (l *listener) wantRefused(t *testing.T, socket, address string) {
	t.Helper()
	if _, err := l.listen(t, socket, address); err == nil {
		t.Errorf("%s was set", address)
	}
}

// wantOwn wants LXD to listen on an address that counts as set here, or on none.
func (l *listener) wantOwn(t *testing.T, address string) {
	t.Helper()
	l.wantAt(t, address)
	if now, err := readListen(l.direct(t)); err != nil || now.mark != address {
		t.Errorf("the mark is %q, want %q (%v)", now.mark, address, err)
	}
}

// wantOperators has an operator set an address, and wants it to stay where another one is wanted.
func (l *listener) wantOperators(t *testing.T, address, wanted string) {
	t.Helper()
	setConfig(t, l.client, listenKey, address)
	if _, err := l.listen(t, l.socket, wanted); !Permanent(err) {
		t.Errorf("an operator's address: %v", err)
	}
	l.wantAt(t, address)
}

// The addresses of this test: the first is wanted, and refused.
const (
	newAddress    = "10.0.2.15:9443"
	formerAddress = "10.0.2.15:8444"
	otherAddress  = "10.0.2.15:8445"
)

// TestWhoseAnAddressIsAfterARefusedOne has the process die before and after each of its writes, and something else
// happen before its next run.
func TestWhoseAnAddressIsAfterARefusedOne(t *testing.T) {
	t.Parallel()
	l := startListener(t)
	between := startProxy(t, l.socket)
	for name, kept := range afterRefusal() {
		for _, former := range []string{"", formerAddress} {
			refuse := l.refuse(t, kept, newAddress)
			next := map[string]func(*testing.T){
				"it is refused again": func(t *testing.T) {
					between.set(refuse)
					l.wantRefused(t, between.socket, newAddress)
					l.wantOwn(t, former)
				},
				"it dies again, and it is refused": func(t *testing.T) {
					death, _ := atWrite(1, true, cutAfter)
					between.set(both(death, refuse))
					l.wantRefused(t, between.socket, newAddress)
					between.set(refuse)
					l.wantRefused(t, between.socket, newAddress)
					l.wantOwn(t, former)
				},
				"LXD can listen there":  func(t *testing.T) { l.wantSet(t, newAddress, Changed) },
				"another one is wanted": func(t *testing.T) { l.wantSet(t, otherAddress, Changed) },
				"an operator sets one": func(t *testing.T) {
					l.wantOperators(t, otherAddress, newAddress)
					l.wantOperators(t, newAddress, formerAddress)
				},
			}
			if former != "" {
				next["the former one is wanted, and an operator sets one"] = func(t *testing.T) {
					l.wantSet(t, former, OK, Changed)
					l.wantOperators(t, newAddress, former)
				}
			}
			for what, then := range next {
				t.Run(strings.Join([]string{name, "before: " + former, what}, "/"), func(t *testing.T) {
					l.dieAtEachWrite(t, between, refuse, former, then)
				})
			}
		}
	}
}

// dieAtEachWrite begins anew for each write of a run whose address is refused, cuts it off there, and then does what
// comes next.
func (l *listener) dieAtEachWrite(t *testing.T, between *proxy, refuse middleware, former string, then func(*testing.T)) {
	t.Helper()
	for n := 1; ; n++ {
		for when, die := range map[string]func(http.Handler, http.ResponseWriter, *http.Request){
			"before": func(http.Handler, http.ResponseWriter, *http.Request) { cut() },
			"after":  cutAfter,
		} {
			l.begin(t, former)
			death, writes := atWrite(n, true, die)
			between.set(both(death, refuse))
			l.wantRefused(t, between.socket, newAddress)
			between.set(nil)
			if died := *writes >= n; !died {
				if n < 3 {
					t.Errorf("it wrote %d times, too few for a try and its end", *writes)
				}
				l.wantOwn(t, former)
				return
			}
			t.Run(fmt.Sprintf("%s write %d", when, n), then)
		}
	}
}

// The node's address changed, and nothing can listen on the former one any more.
func TestNoAddressIsLeftThatLXDCannotListenOn(t *testing.T) {
	t.Parallel()
	l := startListener(t)
	between := startProxy(t, l.socket)
	l.begin(t, formerAddress)
	between.set(l.refuse(t, afterRefusal()["all as sent, as 5.0.2"], newAddress, formerAddress))
	l.wantRefused(t, between.socket, newAddress)
	l.wantOwn(t, "")
}

func TestAddressThatAnOperatorSetsMeanwhileStays(t *testing.T) {
	t.Parallel()
	l := startListener(t)
	between := startProxy(t, l.socket)
	for _, former := range []string{"", formerAddress} {
		l.begin(t, former)
		between.set(l.refuse(t, func(map[string]any, string) map[string]any {
			now, err := readListen(l.direct(t))
			if err == nil {
				_, err = now.write(l.direct(t), otherAddress, now.mark)
			}
			if err != nil {
				t.Error(err)
			}
			return nil
		}, newAddress))
		l.wantRefused(t, between.socket, newAddress)
		l.wantAt(t, otherAddress)
		l.wantOperators(t, otherAddress, newAddress)
	}
}

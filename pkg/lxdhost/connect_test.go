// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/refused"
)

func TestConnectSaysWhatIsWrong(t *testing.T) {
	b := newBed(t)
	other := newKeys(t)
	for name, test := range map[string]struct {
		change  func(*Options)
		between middleware
		want    Kind
	}{
		"nothing":             {change: func(*Options) {}},
		"straight to LXD":     {change: func(o *Options) { *o = b.direct }},
		"another pin":         {change: func(o *Options) { o.ServerCertificate = other.Certificate }, want: KindPin},
		"a pin of LXD's name": {change: func(o *Options) { *o = b.direct; o.ServerCertificate = b.between.Certificate }, want: KindPin},
		"no pin":              {change: func(o *Options) { o.ServerCertificate = nil }, want: KindInvalid},
		"an unknown client": {change: func(o *Options) {
			*o = b.direct
			o.ClientCertificate, o.ClientKey = other.Certificate, other.Key
		}, want: KindNotTrusted},
		"another's key":         {change: func(o *Options) { o.ClientKey = other.Key }, want: KindInvalid},
		"no key":                {change: func(o *Options) { o.ClientKey = nil }, want: KindInvalid},
		"another project":       {change: func(o *Options) { o.Project = elsewhere }, want: KindProject},
		"the default project":   {change: func(o *Options) { o.Project = api.ProjectDefaultName }, want: KindProject},
		"a missing project":     {change: func(o *Options) { o.Project = "missing" }, want: KindProject},
		"no project":            {change: func(o *Options) { o.Project = "" }, want: KindInvalid},
		"no port":               {change: func(o *Options) { o.Address = "127.0.0.1" }, want: KindInvalid},
		"nobody there":          {change: func(o *Options) { o.Address = refused.Port(t) }, want: KindUnreachable},
		"a broken connection":   {change: func(*Options) {}, between: always(cutBefore), want: KindUnreachable},
		"an LXD that starts":    {change: func(*Options) {}, between: answering(http.StatusServiceUnavailable), want: KindUnreachable},
		"an LXD that fails":     {change: func(*Options) {}, between: answering(http.StatusInternalServerError), want: KindOther},
		"no LXD":                {change: func(*Options) {}, between: always(hello), want: KindOther},
		"no virtual machines":   {change: func(*Options) {}, between: environment("driver", "lxc"), want: KindNoVMs},
		"a member of a cluster": {change: func(*Options) {}, between: environment("server_clustered", true), want: KindCluster},
	} {
		t.Run(name, func(t *testing.T) {
			options := b.options
			test.change(&options)
			b.between.set(test.between)
			defer b.between.set(nil)
			h, err := connect(t.Context(), options, newCircuit())
			if h != nil {
				defer h.Close()
			}
			wantKind(t, err, test.want)
			if (h != nil) != (test.want == "") {
				t.Errorf("Connect = %v, %v", h, err)
			}
			if err != nil && (strings.Contains(err.Error(), "PRIVATE") || strings.ContainsRune(err.Error(), '\n')) {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

func always(do interference) middleware {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { do(lxd, w, r) })
	}
}

func hello(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprint(w, "<html>hello")
}

func answering(status int) middleware {
	return always(func(_ http.Handler, w http.ResponseWriter, _ *http.Request) { answer(w, status, "no\nnot now") })
}

func environment(key string, value any) middleware {
	return rewrite("/1.0", func(server map[string]any) { server["environment"].(map[string]any)[key] = value })
}

func TestACallEndsWithItsTimeoutAndWithItsContext(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody speaks
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	options := Options{
		Address: listener.Addr().String(), ServerCertificate: keys.Certificate, ClientCertificate: keys.Certificate, ClientKey: keys.Key,
		Project: project,
	}
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	_, err = connect(ctx, options, newCircuit())
	wantKind(t, err, KindUnreachable)
	wantDeadline(t, err)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = connect(ctx, options, newCircuit())
	wantKind(t, err, KindUnreachable)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestTheKeyIsNotPrinted(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	options := Options{
		Address: "192.0.2.1:8443", ServerCertificate: keys.Certificate, ClientCertificate: keys.Certificate, ClientKey: keys.Key, Project: project,
	}
	secure, err := options.security()
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{transport: newTransport(nil, secure, newCircuit())}
	encoded, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	printed := string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		printed += fmt.Sprintf(verb+verb+verb, options, &options, h)
	}
	bytes := fmt.Sprintf("%d", keys.Key)
	secret, err := json.Marshal(keys.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(keys.Key), bytes[1:20], "PRIVATE", string(secret)} {
		if strings.Contains(printed, text) {
			t.Errorf("%q is in %s", text, printed)
		}
	}
}

func TestTheCertificateSeesNothingElse(t *testing.T) {
	b := newBed(t)
	others := b.all.UseProject(elsewhere)
	b.foreign(others, "hidden", ours.config())
	b.foreign(b.server, "unmarked", nil)
	vms, err := b.host.List(t.Context())
	if err != nil || len(vms) > 0 {
		t.Errorf("List = %v, %v", vms, err)
	}
	// Nor with another project in the hand: the certificate is what counts.
	outside := *b.host
	outside.project = elsewhere
	_, err = outside.List(t.Context())
	wantKind(t, err, KindNotTrusted)
	wantKind(t, b.clone(&outside, spec("intruder")), KindNotTrusted)
	wantKind(t, outside.Delete(t.Context(), "hidden", ours, time.Time{}), KindNotTrusted)
	if _, _, err := others.GetInstance("hidden"); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"
)

func anonymous(t *testing.T) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/secrets", http.NoBody)
}

// certified returns a request with a client certificate that names a user.
func certified(t *testing.T, user string, groups ...string) *http.Request {
	t.Helper()
	r := anonymous(t)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: user, Organization: groups}}}}
	return r
}

func withHeaders(r *http.Request, pairs ...string) *http.Request {
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}
	return r
}

// seen is what identifies the client to the real API server.
type seen struct {
	User   string
	Groups []string
	Token  string
}

func TestForwarderNamesTheUser(t *testing.T) {
	var got *seen
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = &seen{
			User: r.Header.Get("Impersonate-User"), Groups: r.Header.Values("Impersonate-Group"), Token: r.Header.Get("Authorization"),
		}
	}))
	defer server.Close()
	f, err := newForwarder(&rest.Config{Host: server.URL, BearerToken: "all", TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()

	const administrator = "Bearer all"
	for name, test := range map[string]struct {
		request *http.Request
		want    *seen // nil: the request is refused
	}{
		"nobody":        {anonymous(t), &seen{}},
		"a token":       {withHeaders(anonymous(t), "Authorization", "Bearer abc"), &seen{Token: "Bearer abc"}},
		"a certificate": {certified(t, "eve", "one", "two"), &seen{Token: administrator, User: "eve", Groups: []string{"one", "two"}}},
		"a certificate and a token": {
			withHeaders(certified(t, "eve"), "Authorization", "Bearer abc"), &seen{Token: administrator, User: "eve"},
		},
		"a certificate that speaks for the administrator": {withHeaders(certified(t, "eve"), "Impersonate-User", "root", "Impersonate-Group", mastersGroup), nil},
		"a certificate that adds a group":                 {withHeaders(certified(t, "eve"), "impersonate-group", mastersGroup), nil},
		"a certificate that adds something else":          {withHeaders(certified(t, "eve"), "Impersonate-Extra-Scopes", "all"), nil},
		"an administrator":                                {certified(t, "root", mastersGroup), &seen{Token: administrator, User: "root", Groups: []string{mastersGroup}}},
		"an administrator who speaks for another": {
			withHeaders(certified(t, "root", mastersGroup), "Impersonate-User", "eve"), &seen{Token: administrator, User: "eve"},
		},
		"a token that speaks for another, which is for the real server to judge": {
			withHeaders(anonymous(t), "Authorization", "Bearer abc", "Impersonate-User", "root"), &seen{User: "root", Token: "Bearer abc"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			answer := httptest.NewRecorder()
			f.ServeHTTP(answer, test.request)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the real server sees (-want +got):\n%s", diff)
			}
			if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[test.want != nil]; answer.Code != want {
				t.Errorf("the answer is %d, want %d", answer.Code, want)
			}
		})
	}
}

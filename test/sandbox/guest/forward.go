// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// mastersGroup may do everything.
const mastersGroup = "system:masters"

// forwarder passes requests to the real API server of a host cluster. That server does not know the CA of the cluster's
// client certificates: the administrator, who comes with a token and may impersonate any user, names their user to it. All others,
// ServiceAccounts with their tokens above all, are authorized by the real server alone.
type forwarder struct {
	target            *url.URL
	through           *http.Transport
	certified, others *httputil.ReverseProxy
}

func newForwarder(administrator *rest.Config) (*forwarder, error) {
	target, err := url.Parse(administrator.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the real API server: %w", err)
	}
	secure, err := rest.TLSConfigFor(administrator)
	if err != nil {
		return nil, fmt.Errorf("setting up the way to the real API server: %w", err)
	}
	// HTTP/2 has no upgrades, which port-forwarding and its like need.
	secure.NextProtos = []string{"http/1.1"}
	f := &forwarder{target: target, through: &http.Transport{
		TLSClientConfig: secure, MaxIdleConnsPerHost: 100, DisableCompression: true,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}}
	f.certified, f.others = f.proxy(impersonateAs(administrator.BearerToken)), f.proxy(func(*httputil.ProxyRequest) {})
	return f, nil
}

func (f *forwarder) proxy(rewrite func(*httputil.ProxyRequest)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.target)
			rewrite(r)
		},
		Transport:     f.through,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, apierrors.NewInternalError(fmt.Errorf("the real API server does not answer: %w", err)))
		},
	}
}

func (f *forwarder) close() { f.through.CloseIdleConnections() }

// ServeHTTP forwards a request.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !hasCertificate(r):
		f.others.ServeHTTP(w, r)
	case impersonates(r.Header) && !isMaster(r):
		// As the administrator it would be allowed, whoever asks.
		err := errors.New("a client certificate without all rights can't be combined with impersonation here")
		refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, r.Header.Get(transport.ImpersonateUserHeader), err))
	default:
		f.certified.ServeHTTP(w, r)
	}
}

// impersonateAs sets the user that the client certificate names, in the name of the administrator. An API server checks the
// certificate before a token. A user with all rights may impersonate others.
func impersonateAs(administrator string) func(*httputil.ProxyRequest) {
	return func(r *httputil.ProxyRequest) {
		r.Out.Header.Set("Authorization", "Bearer "+administrator)
		if impersonates(r.In.Header) {
			return
		}
		subject := r.In.TLS.PeerCertificates[0].Subject
		r.Out.Header.Set(transport.ImpersonateUserHeader, subject.CommonName)
		for _, group := range subject.Organization {
			r.Out.Header.Add(transport.ImpersonateGroupHeader, group)
		}
	}
}

func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(http.CanonicalHeaderKey(name), "Impersonate-") {
			return true
		}
	}
	return false
}

func hasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 }

func isMaster(r *http.Request) bool {
	return hasCertificate(r) && slices.Contains(r.TLS.PeerCertificates[0].Subject.Organization, mastersGroup)
}

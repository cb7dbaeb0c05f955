// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/canonical/lxd/shared"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
)

// timeout bounds each method, with all its calls.
const timeout = time.Minute

// Options say how a project on an LXD host is reached.
type Options struct {
	// Address of LXD's HTTPS API, as host:port.
	Address string
	// ServerCertificate (PEM) is the only one that the server may have. Its names, its issuer and its dates do not
	// matter.
	ServerCertificate []byte
	// ClientCertificate and ClientKey (PEM) are known to LXD, best for the project only.
	ClientCertificate []byte
	ClientKey         []byte `json:"-"`
	// Project of LXD that the VMs are in.
	Project string
	// Dial makes connections. Default: TCP, through the proxy that HTTPS_PROXY and NO_PROXY name.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"`
}

// String names the host and the project, and none of the keys.
func (o Options) String() string { return fmt.Sprintf("LXD at %s, project %s", o.Address, o.Project) }

// GoString is String: %#v shows no key either.
func (o Options) GoString() string { return o.String() }

// Client returns LXD's name for the client certificate, the SHA-256 of its DER in lower-case hex, and when it ends.
// Both are zero if the client certificate and the key are no pair.
func (o Options) Client() (fingerprint string, ends time.Time) {
	keys, err := tls.X509KeyPair(o.ClientCertificate, o.ClientKey)
	if err != nil {
		return "", time.Time{}
	}
	return shared.CertFingerprint(keys.Leaf), keys.Leaf.NotAfter
}

// Place identifies the LXD and the project, whatever the address is: LXD's fingerprint of the server's certificate, "/"
// and the project. It is "" if the certificate can't be read: then nothing can be asked.
func (o Options) Place() string {
	fingerprint, err := lxdnode.Fingerprint(o.ServerCertificate)
	if err != nil {
		return ""
	}
	return fingerprint + "/" + o.Project
}

// Host is a project on an LXD host. It keeps connections for the next call, until Close, and makes new ones when they
// break. It is safe for concurrent use.
type Host struct {
	address, project string
	timeout          time.Duration
	sendWithin       time.Duration
	transport        transport
	view             *view
}

// connect checks that LXD is there, has the pinned certificate, trusts ours, has the project, shows all of it and can
// run VMs: GET /1.0, GET /1.0/projects/P, GET /1.0/auth/identities/current. circuit may be that of an earlier
// connection.
func connect(ctx context.Context, o Options, circuit *guard.Circuit) (*Host, error) {
	h := &Host{address: o.Address, project: o.Project, timeout: timeout, sendWithin: sendWithin, view: &view{}}
	secure, err := o.security()
	if err != nil {
		return nil, h.fail("connecting", err)
	}
	h.transport = newTransport(o.Dial, secure, circuit)
	if err := h.check(ctx); err != nil {
		h.Close()
		return nil, h.fail("connecting", err)
	}
	return h, nil
}

// Close closes the connections that are kept. The Host can still be used.
func (h *Host) Close() { h.transport.inner.CloseIdleConnections() }

// check reads the server and the project.
func (h *Host) check(ctx context.Context) error {
	s, end, err := h.session(ctx, "connect")
	if err != nil {
		return err
	}
	defer end()
	// Without a project: an untrusted client gets this much, and the certificate may be for another one.
	server, _, err := s.client.In("").GetServer()
	if err != nil {
		return err
	}
	if server.Auth != "trusted" {
		return problem(KindNotTrusted, "LXD does not trust the client's certificate")
	}
	switch _, _, err := s.client.GetProject(h.project); {
	case api.StatusErrorCheck(err, http.StatusNotFound):
		return problem(KindProject, "there is no project %s", h.project)
	case api.StatusErrorCheck(err, http.StatusForbidden):
		return problem(KindProject, "the client's certificate is not for the project %s", h.project)
	case err != nil:
		return err
	}
	if server.Environment.ServerClustered {
		return problem(KindCluster, "it is a member of an LXD cluster")
	}
	if !lxdnode.RunsVMs(server) {
		return problem(KindNoVMs, "LXD %s can't run virtual machines there (its drivers: %s)",
			server.Environment.ServerVersion, server.Environment.Driver)
	}
	return s.sees(server)
}

// security pins the server's certificate and has the client's.
func (o Options) security() (*tls.Config, error) {
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return nil, problem(KindInvalid, "the address must be host:port")
	}
	if o.Project == "" {
		return nil, problem(KindInvalid, "a project is needed")
	}
	pinned, err := lxdnode.ParseCertificate(o.ServerCertificate)
	if err != nil {
		return nil, problem(KindInvalid, "the server's certificate: %v", err)
	}
	keys, err := tls.X509KeyPair(o.ClientCertificate, o.ClientKey)
	if err != nil {
		return nil, problem(KindInvalid, "the client's certificate and key are not a pair in PEM")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// LXD asks for a certificate without naming issuers: this one, always.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &keys, nil },
		InsecureSkipVerify:   true, // LXD's certificate is self-signed: it is compared below
		VerifyConnection: func(state tls.ConnectionState) error {
			if chain := state.PeerCertificates; len(chain) == 0 || !chain[0].Equal(pinned) {
				return errPin
			}
			return nil
		},
	}, nil
}

// Server returns the LXD that the options are for: the one at the address, with the certificate.
func (o Options) Server() guard.Server { return guard.ServerAt(o.Address, o.ServerCertificate) }

// session is one method's calls.
type session struct {
	ctx     context.Context
	client  *lxdapi.Client
	project string
	turn    *turn
	view    *view
	// vm is the id of the VM that was proven first; nil before.
	vm *string
}

// session begins a method's calls, which end with its timeout or with end. The caller's worker is free until then.
// operation is for the metrics.
func (h *Host) session(ctx context.Context, operation string) (s *session, end func(), err error) {
	resume := guard.Idle(ctx)
	turn := &turn{operation: operation, before: time.Now(), within: h.sendWithin}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, turnKey{}, turn), h.timeout)
	end = func() { cancel(); resume() }
	client, err := lxdapi.HTTPS(ctx, h.address, h.transport)
	if err != nil {
		end()
		return nil, nil, problem(KindInvalid, "the address: %v", err)
	}
	s = &session{ctx: ctx, client: client.In(h.project), project: h.project, turn: turn, view: h.view}
	return s, end, nil
}

// in does something in a session, and adds to its error what was being done.
func (h *Host) in(ctx context.Context, operation, doing string, do func(*session) error) error {
	s, end, err := h.session(ctx, operation)
	if err != nil {
		return h.fail(doing, err)
	}
	defer end()
	return h.fail(doing, do(s))
}

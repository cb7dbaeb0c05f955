// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	inmemoryapi "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/api"
	inmemoryetcd "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/etcd"
	"sigs.k8s.io/cluster-api/util/certs"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// apiServer is the API server and the etcd member of one control plane. Both are served by one listener on 127.0.0.1:
// etcd's clients ask for the name of the member's pod in TLS, and reach it by port-forwarding as in a real cluster.
type apiServer struct {
	member   *member
	listener *trackingListener
	server   *http.Server
	api      http.Handler
	etcd     http.Handler
	done     chan struct{}
}

// serve starts the API server of a machine.
func serve(m *member) (*apiServer, error) {
	config, err := tlsConfig(m)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the API server of %s: %w", m.node, err)
	}
	group := func(string) (string, error) { return m.cluster.group, nil }
	s := &apiServer{
		member:   m,
		listener: &trackingListener{Listener: listener, open: map[net.Conn]struct{}{}},
		api:      inmemoryapi.NewAPIServerHandler(m.cluster.manager, logr.Discard(), group),
		etcd:     inmemoryetcd.NewEtcdServerHandler(m.cluster.manager, logr.Discard(), group),
		done:     make(chan struct{}),
	}
	s.server = &http.Server{
		Handler:           s,
		TLSConfig:         config,
		ReadHeaderTimeout: eventually.Limit,
		ErrorLog:          log.New(io.Discard, "", 0), // handshakes that clients give up
	}
	go func() {
		defer close(s.done)
		_ = s.server.ServeTLS(s.listener, "", "")
	}()
	return s, nil
}

// address is where the listener really is.
func (s *apiServer) address() string { return s.listener.Addr().String() }

// stop is a loss of power: all connections end, also those that were taken over for port-forwarding.
func (s *apiServer) stop() error {
	err := s.server.Close()
	s.listener.closeAll()
	<-s.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// tlsConfig serves two certificates, and asks for client certificates of the right CA.
func tlsConfig(m *member) (*tls.Config, error) {
	server, err := m.cluster.ca.sign("kube-apiserver", m.apiServerNames(), x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	etcdNames := certs.AltNames{DNSNames: []string{m.etcdPod(), m.node, "localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	etcd, err := m.cluster.etcdCA.sign(m.node, etcdNames, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	protocols := []string{"h2", "http/1.1"}
	forAPI := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{*server},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: m.cluster.clientCA.pool(),
	}
	forEtcd := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{*etcd},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: m.cluster.etcdCA.pool(),
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{*server},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if m.servesEtcd(hello.ServerName) {
				return forEtcd, nil
			}
			return forAPI, nil
		},
	}, nil
}

// servesEtcd reports whether a client that asks for a name in TLS wants etcd: it asks for a pod of the machine.
func (m *member) servesEtcd(name string) bool {
	if name == m.etcdPod() {
		return true
	}
	server := m.cluster.serverOfPod(name)
	return server != nil && server == m.running()
}

func (a *authority) sign(name string, names certs.AltNames, usages ...x509.ExtKeyUsage) (*tls.Certificate, error) {
	key, err := certs.NewSigner(bootstrapv1.EncryptionAlgorithmECDSAP256) // made fastest
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", name, err)
	}
	cert, err := (&certs.Config{CommonName: name, AltNames: names, Usages: usages}).NewSignedCert(key, a.cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", name, err)
	}
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

var (
	portForward = regexp.MustCompile(`^/api/v1/namespaces/kube-system/pods/([^/]+)/portforward$`)
	systemPods  = regexp.MustCompile(`^/api/v1/namespaces/kube-system/pods(/|$)`)
	nodePath    = regexp.MustCompile(`^/api/v1/nodes/([^/]+)$`)
	nodeStatus  = regexp.MustCompile(`^(/api/v1/nodes/[^/]+)/status$`)
)

const memberRemove = "/etcdserverpb.Cluster/MemberRemove"

// ServeHTTP adds what the in-memory server lacks. In a host cluster that server has only the pods of kube-system, which
// the control-plane provider reads as an administrator: they do not run.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.member.cluster
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		r.Host = s.member.etcdPod() // The in-memory etcd knows its members by that, whatever pod led here.
		s.etcd.ServeHTTP(w, r)
		if r.URL.Path == memberRemove {
			c.collect()
		}
		return
	}
	if s.answerItself(w, r) {
		return
	}
	if found := portForward.FindStringSubmatch(r.URL.Path); found != nil && s.inMemory(r) {
		// The in-memory server forwards to the host that it was called as. What is asked for is another machine's pod.
		target := c.serverOfPod(found[1])
		if target == nil {
			refuse(w, apierrors.NewInternalError(fmt.Errorf("the pod %s can't be reached: its node does not answer", found[1])))
			return
		}
		r.Host = target.address()
	}
	if found := nodeStatus.FindStringSubmatch(r.URL.Path); found != nil && s.inMemory(r) {
		r.URL.Path = found[1] // in memory, the status is written with the rest
	}
	if found := nodePath.FindStringSubmatch(r.URL.Path); found != nil {
		switch r.Method {
		case http.MethodDelete:
			defer c.collect()
		case http.MethodPatch, http.MethodPut:
			defer c.react(found[1])
		}
	}
	if s.inMemory(r) {
		s.api.ServeHTTP(w, r)
		return
	}
	c.backing.forwarder.ServeHTTP(w, r)
}

// inMemory reports whether a request is for the in-memory server, which authorizes all clients.
func (s *apiServer) inMemory(r *http.Request) bool {
	if s.member.cluster.backing == nil {
		return true
	}
	return systemPods.MatchString(r.URL.Path) && isMaster(r) && !impersonates(r.Header)
}

// answerItself responds to health and version requests, to those of unknown clients, and to all where etcd has lost its
// quorum. It reports whether it did.
func (s *apiServer) answerItself(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/livez", "/readyz", "/healthz":
		_, _ = w.Write([]byte("ok"))
		return true
	case "/version":
		answer(w, http.StatusOK, version.Info{Major: "1", GitVersion: s.member.version, Platform: "linux/amd64"})
		return true
	}
	if s.member.cluster.backing == nil && !hasCertificate(r) {
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return true
	}
	if !s.member.cluster.quorum() {
		refuse(w, apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
		return true
	}
	return false
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	answer(w, int(status.Code), status)
}

func answer(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data)
}

// trackingListener knows its open connections, also those that the HTTP server no longer does.
type trackingListener struct {
	net.Listener
	mutex sync.Mutex
	open  map[net.Conn]struct{}
}

func (l *trackingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: connection, listener: l}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.open[tracked] = struct{}{}
	return tracked, nil
}

func (l *trackingListener) closeAll() {
	l.mutex.Lock()
	connections := make([]net.Conn, 0, len(l.open))
	for connection := range l.open {
		connections = append(connections, connection)
	}
	l.mutex.Unlock()
	for _, connection := range connections {
		_ = connection.Close()
	}
}

type trackedConn struct {
	net.Conn
	listener *trackingListener
}

func (c *trackedConn) Close() error {
	c.listener.mutex.Lock()
	delete(c.listener.open, c)
	c.listener.mutex.Unlock()
	return c.Conn.Close()
}

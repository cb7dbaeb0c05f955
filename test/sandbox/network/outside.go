// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// Outside dials what is not of the sandbox.
type Outside func(ctx context.Context, hostPort string) (net.Conn, error)

// Forward has names that MAAS's DNS does not know lead out of the sandbox, as a DNS server forwards what it does not serve:
// with the variables env, which may name a proxy. The programs of a user who is in the sandbox's network then work as
// they do elsewhere.
func (n *Network) Forward(env []string) {
	variable := map[string]string{}
	for _, one := range env {
		name, value, _ := strings.Cut(one, "=")
		variable[strings.ToUpper(name)] = value
	}
	proxies := (&httpproxy.Config{HTTPSProxy: variable["HTTPS_PROXY"], NoProxy: variable["NO_PROXY"]}).ProxyFunc()
	n.outside = func(ctx context.Context, hostPort string) (net.Conn, error) {
		through, err := proxies(&url.URL{Scheme: "https", Host: hostPort})
		if err != nil {
			return nil, fmt.Errorf("reading HTTPS_PROXY: %w", err)
		}
		if through == nil {
			return (&net.Dialer{}).DialContext(ctx, "tcp", hostPort)
		}
		return tunnel(ctx, through, hostPort)
	}
}

// leadsOutside reports whether a host is neither of the sandbox nor an address, which might be.
func (n *Network) leadsOutside(host string) bool {
	_, err := netip.ParseAddr(host)
	return n.outside != nil && err != nil
}

// tunnel connects through a proxy.
func tunnel(ctx context.Context, proxy *url.URL, hostPort string) (net.Conn, error) {
	address := proxy.Host
	if proxy.Port() == "" {
		address = net.JoinHostPort(proxy.Hostname(), "80")
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: hostPort}, Host: hostPort, Header: http.Header{}}
	if password, has := proxy.User.Password(); has {
		login := &http.Request{Header: http.Header{}}
		login.SetBasicAuth(proxy.User.Username(), password)
		request.Header.Set("Proxy-Authorization", login.Header.Get("Authorization"))
	}
	buffered := bufio.NewReader(connection)
	err = request.Write(connection)
	if err == nil {
		err = accepted(buffered, request, proxy)
	}
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	return &tunnelled{connection, buffered}, nil
}

// accepted reads the response of a proxy. What follows it is not read.
func accepted(from *bufio.Reader, request *http.Request, proxy *url.URL) error {
	response, err := http.ReadResponse(from, request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return fmt.Errorf("%s responds %s: %w", proxy.Redacted(), response.Status, ErrUnreachable)
	}
	return nil
}

// tunnelled is a connection of which some may have been read already.
type tunnelled struct {
	net.Conn
	buffered io.Reader
}

func (t *tunnelled) Read(into []byte) (int, error) { return t.buffered.Read(into) }

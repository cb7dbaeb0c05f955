// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// longestQuery is that of DNS over UDP without extensions, and more.
	longestQuery = 4096
	// timeToLive of responses, in seconds.
	timeToLive = 15
)

var errQuery = errors.New("not one question")

// serveDNS responds with MAAS's names, as MAAS's own DNS server does, until the connection is closed.
func serveDNS(conn net.PacketConn, lookup func(host string) []netip.Addr) {
	buffer := make([]byte, longestQuery)
	for {
		size, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if reply, err := answer(buffer[:size], lookup); err == nil {
			_, _ = conn.WriteTo(reply, from) // the client asks again
		}
	}
}

// answer is the reply to a query. A name without addresses does not exist.
func answer(query []byte, lookup func(host string) []netip.Addr) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil {
		return nil, fmt.Errorf("reading a DNS query: %w", err)
	}
	if len(message.Questions) != 1 {
		return nil, errQuery
	}
	question := message.Questions[0]
	addresses := lookup(strings.ToLower(strings.TrimSuffix(question.Name.String(), ".")))
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: message.ID, Response: true, Authoritative: true, RecursionDesired: message.RecursionDesired, RecursionAvailable: true},
		Questions: message.Questions,
	}
	if len(addresses) == 0 {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, address := range addresses {
		if body := record(address, question.Type); body != nil {
			header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: timeToLive}
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: body})
		}
	}
	return reply.Pack()
}

func record(address netip.Addr, kind dnsmessage.Type) dnsmessage.ResourceBody {
	switch {
	case kind == dnsmessage.TypeA && address.Is4():
		return &dnsmessage.AResource{A: address.As4()}
	case kind == dnsmessage.TypeAAAA && address.Is6():
		return &dnsmessage.AAAAResource{AAAA: address.As16()}
	}
	return nil
}

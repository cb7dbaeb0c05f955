// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"crypto/sha256"
	"fmt"
)

// Server identifies a MAAS or an LXD by how our credentials reach it. Nothing that a server says of itself is part of
// it: each server could say the same. The zero value is no server.
//
// Two addresses are two servers, even if both accept the same credentials: a MAAS that was restored from the database
// of another accepts its keys, and shows its ids.
type Server struct{ at, certificate string }

// ServerAt returns the server at an address, which must prove that it has a certificate if one is given. It is for the
// types that hold credentials: only what they lead to is an address.
func ServerAt(address string, certificate []byte) Server {
	if len(certificate) == 0 {
		return Server{at: address}
	}
	return Server{at: address, certificate: fmt.Sprintf("%x", sha256.Sum256(certificate))}
}

// Address returns the address.
func (s Server) Address() string { return s.at }

// Key returns the key of something that the server has. The name is distinct among the things of its kind there.
func (s Server) Key(name string) Key { return Key{server: s, name: name} }

// Key is what state is indexed by that the users of several servers share. It can't be made without the server, so that
// no server's responses change what is known of another one. The zero value is the key of nothing.
type Key struct {
	server Server
	name   string
}

// Server returns the server that has it.
func (k Key) Server() Server { return k.server }

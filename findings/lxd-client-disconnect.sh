#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# LXD's Go client keeps its connection for events after Disconnect, for up to a minute.
#
# Software: github.com/canonical/lxd/client of 2024-12-09 (v0.0.0-20241209155119-76da976c6ee7), with a server that answers
#   as LXD does on its socket.
# Expected: Disconnect ends what the client has open. A client that waits for an operation has listened to events: the
#   server writes each event of every operation to it as long as the connection is there.
# Seen: Disconnect cancels its context only if that was canceled before, so it does nothing. The connection stays until a
#   timer of the client, which runs once a minute, finds no listener. A program that connects anew for each operation has as
#   many connections for events as there were operations in the last minute. The context of ConnectLXDUnixWithContext does
#   not end it either.
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.com/disconnects

go 1.25
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	lxd "github.com/canonical/lxd/client"
	"github.com/gorilla/websocket"
)

func main() {
	socket, err := filepath.Abs("socket")
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	ended := make(chan struct{}, 1)
	upgrader := websocket.Upgrader{}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/1.0/events" {
			events, err := upgrader.Upgrade(w, r, nil)
			if err != nil {
				panic(err)
			}
			for err == nil {
				_, _, err = events.ReadMessage()
			}
			ended <- struct{}{}
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"type": "sync", "status_code": 200, "metadata": map[string]any{
			"api_version": "1.0", "auth": "trusted", "environment": map[string]any{"project": "default"},
		}})
	}))
	ctx, cancel := context.WithCancel(context.Background())
	client, err := lxd.ConnectLXDUnixWithContext(ctx, socket, nil)
	if err != nil {
		panic(err)
	}
	events, err := client.GetEvents()
	if err != nil {
		panic(err)
	}
	events.Disconnect()
	client.Disconnect()
	cancel()
	for _, wait := range []struct {
		what string
		limit time.Duration
	}{{"right after Disconnect", 20 * time.Second}, {"some minutes later", 5 * time.Minute}} {
		open := true
		select {
		case <-ended:
			open = false
		case <-time.After(wait.limit):
		}
		fmt.Printf("%s: the connection for events is open: %v\n", wait.what, open)
	}
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go get github.com/canonical/lxd@v0.0.0-20241209155119-76da976c6ee7 2>/dev/null
go mod tidy 2>/dev/null
go run . >seen
cat seen
diff - seen <<'WANT'
right after Disconnect: the connection for events is open: true
some minutes later: the connection for events is open: false
WANT

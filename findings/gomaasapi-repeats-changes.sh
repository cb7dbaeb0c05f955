#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gomaasapi sends a change again by itself, also after 409.
#
# Software: github.com/juju/gomaasapi/v2 v2.4.0, its Client, with a server that refuses as MAAS does under load.
# Expected: as the comment of its dispatchRequest says, a 503 with Retry-After is tried again; everything else is returned
#   at once, and a change (POST, DELETE) is not repeated without being asked.
# Seen: a 409 with Retry-After, which MAAS sends when transactions conflict, is repeated as well. POST and DELETE are
#   repeated as GET is: five requests for one call, each after the pause that the server names, which nothing can
#   interrupt. A POST without an operation is sent with an empty one (?op=).
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.com/repeats

go 1.25
MOD
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/juju/gomaasapi/v2"
)

func main() {
	status, pause := 0, ""
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.RawQuery)
		if pause != "" {
			w.Header().Set("Retry-After", pause)
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	client, err := gomaasapi.NewAuthenticatedClient(server.URL+"/MAAS/api/2.0/", "consumer:token:secret")
	if err != nil {
		panic(err)
	}
	calls := []struct {
		name string
		send func() error
	}{
		{"GET", func() error { _, err := client.Get(&url.URL{Path: "machines/"}, "", nil); return err }},
		{"POST", func() error { _, err := client.Post(&url.URL{Path: "devices/"}, "", url.Values{}, nil); return err }},
		{"DELETE", func() error { return client.Delete(&url.URL{Path: "devices/abc/"}) }},
	}
	for _, answer := range []struct {
		status int
		pause  string
	}{{503, ""}, {503, "0"}, {409, ""}, {409, "0"}, {500, "0"}} {
		status, pause = answer.status, answer.pause
		for _, call := range calls {
			seen = nil
			failed := call.send() != nil
			fmt.Printf("%d Retry-After %q: %s: %d requests, query %q, error %v\n", status, pause, call.name, len(seen), seen[0], failed)
		}
	}
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go get github.com/juju/gomaasapi/v2@v2.4.0 2>/dev/null
go mod tidy 2>/dev/null
go run . >seen
cat seen
diff - seen <<'WANT'
503 Retry-After "": GET: 1 requests, query "", error true
503 Retry-After "": POST: 1 requests, query "op=", error true
503 Retry-After "": DELETE: 1 requests, query "", error true
503 Retry-After "0": GET: 5 requests, query "", error true
503 Retry-After "0": POST: 5 requests, query "op=", error true
503 Retry-After "0": DELETE: 5 requests, query "", error true
409 Retry-After "": GET: 1 requests, query "", error true
409 Retry-After "": POST: 1 requests, query "op=", error true
409 Retry-After "": DELETE: 1 requests, query "", error true
409 Retry-After "0": GET: 5 requests, query "", error true
409 Retry-After "0": POST: 5 requests, query "op=", error true
409 Retry-After "0": DELETE: 5 requests, query "", error true
500 Retry-After "0": GET: 1 requests, query "", error true
500 Retry-After "0": POST: 1 requests, query "op=", error true
500 Retry-After "0": DELETE: 1 requests, query "", error true
WANT

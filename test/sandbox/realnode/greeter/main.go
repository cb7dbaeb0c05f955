// SPDX-License-Identifier: Apache-2.0

// Command greeter is a pod of a Service of real nodes. At / it responds with the name of its node. At /all it asks the
// Service of that name many times, each over a new connection, and responds with the names that it got, one in a line.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"
)

const (
	// service is its own, by the name that DNS knows in its namespace.
	service = "http://greeter"
	// times is enough to get to each of two pods: that one is missed happens once in half a million.
	times   = 20
	timeout = 5 * time.Second
)

func main() {
	node := os.Getenv("NODE")
	http.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, node) })
	http.HandleFunc("GET /all", func(w http.ResponseWriter, r *http.Request) {
		nodes, err := all(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		for _, name := range nodes {
			_, _ = fmt.Fprintln(w, name)
		}
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: timeout}
	log.Fatal(server.ListenAndServe())
}

// all are the names that the Service responds with.
func all(ctx context.Context) ([]string, error) {
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	names := map[string]bool{}
	for range times {
		name, err := ask(ctx, client)
		if err != nil {
			return nil, err
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

func ask(ctx context.Context, client *http.Client) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, service, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	name, err := io.ReadAll(response.Body)
	return string(name), err
}

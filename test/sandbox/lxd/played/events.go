// SPDX-License-Identifier: Apache-2.0

package played

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// follow leads LXD's events to a client, and those of the proxy's own operations.
func (p *Proxy) follow(w http.ResponseWriter, r *http.Request) {
	who, _ := r.Context().Value(clientKey{}).(client)
	transport := p.transport(who)
	dialer := websocket.Dialer{
		TLSClientConfig: transport.TLSClientConfig,
		NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return transport.DialContext(ctx, network, address)
		},
	}
	out := r.Clone(r.Context())
	p.lead(out, who)
	out.URL.Scheme = strings.Replace(out.URL.Scheme, "http", "ws", 1)
	from, response, err := dialer.DialContext(r.Context(), out.URL.String(), nil)
	if err != nil {
		if response == nil {
			panic(http.ErrAbortHandler)
		}
		(&reply{status: response.StatusCode, header: response.Header, other: response.Body}).write(w)
		return
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	to, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		_ = from.Close()
		return
	}
	end := sync.OnceFunc(func() { _, _ = from.Close(), to.Close() })
	defer end()
	defer context.AfterFunc(r.Context(), end)()
	var mu sync.Mutex
	send := func(message []byte) {
		mu.Lock()
		defer mu.Unlock()
		if to.WriteMessage(websocket.TextMessage, message) != nil {
			end()
		}
	}
	query := r.URL.Query()
	if kinds := query.Get("type"); kinds == "" || slices.Contains(strings.Split(kinds, ","), "operation") {
		defer p.operations.follow(func(project string, metadata map[string]any) {
			if wanted := query.Get("project"); query.Get("all-projects") == "" && wanted != "" && wanted != project {
				return
			}
			message, _ := json.Marshal(map[string]any{
				"type": "operation", "timestamp": time.Now(), "metadata": metadata, "location": "none", "project": project,
			})
			send(message)
		})()
	}
	go func() {
		defer end()
		for {
			if _, _, err := to.ReadMessage(); err != nil {
				return
			}
		}
	}()
	for {
		_, message, err := from.ReadMessage()
		if err != nil {
			return
		}
		send([]byte(p.store.seen().Replace(string(message))))
	}
}

// follow calls back with each change of an operation, until stop.
func (o *operations) follow(to func(project string, metadata map[string]any)) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	id := o.last
	o.told[id] = to
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.told, id)
	}
}

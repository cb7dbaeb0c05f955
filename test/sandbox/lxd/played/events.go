// SPDX-License-Identifier: Apache-2.0

package played

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// writeTimeout bounds how long a client may take for an event.
const writeTimeout = 5 * time.Minute

// follow leads LXD's events to a client, and those of the proxy's own operations.
func (p *Proxy) follow(w http.ResponseWriter, r *http.Request, who client) {
	transport := p.transport(who)
	dialer := websocket.Dialer{TLSClientConfig: transport.TLSClientConfig, NetDialContext: transport.DialContext}
	out := r.Clone(r.Context())
	lead(out, who)
	out.URL.Scheme = strings.Replace(out.URL.Scheme, "http", "ws", 1)
	from, response, err := dialer.DialContext(r.Context(), out.URL.String(), nil)
	if err != nil && response == nil {
		broken()
	}
	defer func() { _ = response.Body.Close() }()
	if err != nil {
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
	send := func(message string) {
		mu.Lock()
		defer mu.Unlock()
		_ = to.SetWriteDeadline(time.Now().Add(writeTimeout))
		if to.WriteMessage(websocket.TextMessage, []byte(message)) != nil {
			end()
		}
	}
	query := r.URL.Query()
	if kinds := query.Get("type"); kinds == "" || slices.Contains(strings.Split(kinds, ","), "operation") {
		defer p.operations.follow(func(project string, shown map[string]any) {
			if wanted := query.Get("project"); query.Get("all-projects") == "" && wanted != "" && wanted != project {
				return
			}
			message, _ := json.Marshal(map[string]any{
				"type": "operation", "timestamp": time.Now(), "metadata": shown, "location": "none", "project": project,
			})
			send(string(message))
		})()
	}
	go func() {
		defer end()
		for err := error(nil); err == nil; {
			_, _, err = to.ReadMessage()
		}
	}()
	for {
		_, message, err := from.ReadMessage()
		if err != nil {
			return
		}
		send(p.store.seen().Replace(string(message)))
	}
}

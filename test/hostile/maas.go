// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// LyingMAAS is in front of a MAAS, and tells lies about it to every other request, all of them well-formed.
type LyingMAAS struct {
	MAAS http.Handler

	asked, lied atomic.Int64
}

// Asked is how many requests there were.
func (l *LyingMAAS) Asked() int { return int(l.asked.Load()) }

// Lied is how many of the responses were lies.
func (l *LyingMAAS) Lied() int { return int(l.lied.Load()) }

// lie responds to a request.
type lie func(maas http.Handler, w http.ResponseWriter, r *http.Request)

// What a lying MAAS says, in turn.
var (
	liesToReads   = []lie{nothingIsThere, everythingIsFree, youHaveEverything, itIsAnother}
	liesToChanges = []lie{itIsDone, itIsNotThere, itIsDone}
)

// ServeHTTP responds with the truth, or a lie.
func (l *LyingMAAS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := l.asked.Add(1)
	if number%2 == 0 {
		l.MAAS.ServeHTTP(w, r)
		return
	}
	l.lied.Add(1)
	lies := liesToReads
	if r.Method != http.MethodGet {
		lies = liesToChanges
	}
	lies[int(number/2)%len(lies)](l.MAAS, w, r)
}

// nothingIsThere: lists are empty, and objects are missing.
func nothingIsThere(maas http.Handler, w http.ResponseWriter, r *http.Request) {
	retell(maas, w, r, func(answer any) any {
		if _, list := answer.([]any); list {
			return []any{}
		}
		return nil
	})
}

// everythingIsFree: all machines are nobody's, and ready to be taken.
func everythingIsFree(maas http.Handler, w http.ResponseWriter, r *http.Request) {
	retell(maas, w, r, func(answer any) any {
		for _, m := range machinesIn(answer) {
			m["status"], m["status_name"], m["owner"], m["owner_data"], m["power_state"] = 4, "Ready", nil, object{}, "off"
		}
		return answer
	})
}

// youHaveEverything: whatever is asked for, all there is is the answer.
func youHaveEverything(maas http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("op") == "" {
		r.URL.RawQuery = ""
	}
	maas.ServeHTTP(w, r)
}

// itIsAnother: each machine has the id of the one before it.
func itIsAnother(maas http.Handler, w http.ResponseWriter, r *http.Request) {
	retell(maas, w, r, func(answer any) any {
		machines := machinesIn(answer)
		if len(machines) == 0 {
			return answer
		}
		before := machines[len(machines)-1]["system_id"]
		for _, m := range machines {
			m["system_id"], before = before, m["system_id"]
		}
		return answer
	})
}

// itIsDone: a change that is not made succeeds, with the first of what is there.
func itIsDone(maas http.Handler, w http.ResponseWriter, r *http.Request) {
	read := r.Clone(r.Context())
	read.Method, read.URL.RawQuery, read.Body, read.ContentLength = http.MethodGet, "", http.NoBody, 0
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	retell(maas, w, read, func(answer any) any {
		if list, is := answer.([]any); is && len(list) > 0 {
			return list[0]
		}
		return answer
	})
}

// itIsNotThere: nothing is changed, for there is nothing.
func itIsNotThere(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "Not Found", http.StatusNotFound)
}

type object = map[string]any

// retell passes a request on, and changes the answer; nil is 404.
func retell(maas http.Handler, w http.ResponseWriter, r *http.Request, change func(any) any) {
	heard := httptest.NewRecorder()
	maas.ServeHTTP(heard, r)
	var answer any
	if heard.Code == http.StatusOK && json.Unmarshal(heard.Body.Bytes(), &answer) == nil {
		if answer = change(answer); answer == nil {
			itIsNotThere(maas, w, r)
			return
		}
		if told, err := json.Marshal(answer); err == nil {
			heard.Body.Reset()
			heard.Body.Write(told)
			heard.Header().Del("Content-Length")
		}
	}
	maps.Copy(w.Header(), heard.Header())
	w.WriteHeader(heard.Code)
	_, _ = w.Write(heard.Body.Bytes())
}

// machinesIn returns the machines of an answer: an object, or a list.
func machinesIn(answer any) (machines []object) {
	list, is := answer.([]any)
	if !is {
		list = []any{answer}
	}
	for _, one := range list {
		if m, is := one.(object); is && m["system_id"] != nil && m["status_name"] != nil {
			machines = append(machines, m)
		}
	}
	return machines
}

// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/juju/gomaasapi/v2"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// Person is a user who calls MAAS's API beside the manager.
type Person struct {
	*testing.T
	api *gomaasapi.Client
}

// As is the person with an account of the region's description.
func As(t *testing.T, box *sandbox.Sandbox, user string) *Person {
	t.Helper()
	for _, account := range box.MAAS.Users() {
		if account.Name != user || len(account.Keys) == 0 {
			continue
		}
		api, err := gomaasapi.NewAuthenticatedClient(gomaasapi.AddAPIVersionToURL(box.MAASURL, "2.0"), account.Keys[0])
		if err != nil {
			t.Fatal(err)
		}
		return &Person{T: t, api: api}
	}
	t.Fatalf("the region has no user %s with an API key", user)
	return nil
}

// Do makes a call, with parameters as pairs, and returns the JSON object in MAAS's response; nil if it is no object.
func (p *Person) Do(method, path, op string, pairs ...string) map[string]any {
	p.Helper()
	object := map[string]any{}
	if json.Unmarshal(p.call(method, path, op, pairs), &object) != nil {
		return nil // another kind of response
	}
	return object
}

// List reads a list.
func (p *Person) List(path string, pairs ...string) []map[string]any {
	p.Helper()
	var list []map[string]any
	if err := json.Unmarshal(p.call(http.MethodGet, path, "", pairs), &list); err != nil {
		p.Fatalf("reading %s: %v", path, err)
	}
	return list
}

func (p *Person) call(method, path, op string, pairs []string) []byte {
	p.Helper()
	params := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		params.Add(pairs[i], pairs[i+1])
	}
	var answer []byte
	var err error
	uri := &url.URL{Path: path}
	switch method {
	case http.MethodGet:
		answer, err = p.api.Get(uri, op, params)
	case http.MethodPost:
		answer, err = p.api.Post(uri, op, params, nil)
	case http.MethodPut:
		answer, err = p.api.Put(uri, params, nil)
	case http.MethodDelete:
		err = p.api.Delete(uri)
	default:
		p.Fatalf("MAAS's API has no %s", method)
	}
	if err != nil {
		p.Fatalf("%s %s op=%s: %v", method, path, op, err)
	}
	return answer
}

// Machine does something to a machine.
func (p *Person) Machine(systemID, op string, pairs ...string) {
	p.Helper()
	p.Do(http.MethodPost, "machines/"+systemID+"/", op, pairs...)
}

// Edit changes fields of a machine.
func (p *Person) Edit(systemID string, pairs ...string) {
	p.Helper()
	p.Do(http.MethodPut, "machines/"+systemID+"/", "", pairs...)
}

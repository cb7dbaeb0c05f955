// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// registry is the part of an OCI registry that a push needs. It keeps everything in memory.
type registry struct {
	address     string // host:port
	certificate *x509.Certificate

	mutex     sync.Mutex
	uploads   map[string][]byte // by location
	blobs     map[string][]byte // by digest
	manifests map[string]manifestFile
}

// manifestFile is a pushed manifest.
type manifestFile struct {
	mediaType string
	content   []byte
}

// newRegistry runs a registry until the test ends.
func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{uploads: map[string][]byte{}, blobs: map[string][]byte{}, manifests: map[string]manifestFile{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("HEAD /v2/{name}/blobs/{digest}", r.headBlob)
	mux.HandleFunc("POST /v2/{name}/blobs/uploads/", r.begin)
	mux.HandleFunc("PATCH /v2/{name}/blobs/uploads/{id}", r.add)
	mux.HandleFunc("PUT /v2/{name}/blobs/uploads/{id}", r.end)
	mux.HandleFunc("HEAD /v2/{name}/manifests/{reference}", r.headManifest)
	mux.HandleFunc("PUT /v2/{name}/manifests/{reference}", r.putManifest)
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	r.address, r.certificate = strings.TrimPrefix(server.URL, "https://"), server.Certificate()
	return r
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func (r *registry) headBlob(w http.ResponseWriter, request *http.Request) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	blob, found := r.blobs[request.PathValue("digest")]
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
}

func (r *registry) begin(w http.ResponseWriter, request *http.Request) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	location := request.URL.Path + fmt.Sprint(len(r.uploads))
	r.uploads[location] = nil
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusAccepted)
}

func (r *registry) add(w http.ResponseWriter, request *http.Request) {
	content, err := io.ReadAll(request.Body)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	location := request.URL.Path
	if _, begun := r.uploads[location]; !begun || err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.uploads[location] = append(r.uploads[location], content...)
	w.Header().Set("Location", location)
	w.Header().Set("Range", fmt.Sprintf("0-%d", len(r.uploads[location])-1))
	w.WriteHeader(http.StatusAccepted)
}

func (r *registry) end(w http.ResponseWriter, request *http.Request) {
	content, err := io.ReadAll(request.Body)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	blob := slices.Concat(r.uploads[request.URL.Path], content)
	if digest := request.URL.Query().Get("digest"); err != nil || digest != digestOf(blob) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.blobs[digestOf(blob)] = blob
	w.WriteHeader(http.StatusCreated)
}

func (r *registry) headManifest(w http.ResponseWriter, request *http.Request) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	file, found := r.manifests[request.PathValue("name")+"@"+request.PathValue("reference")]
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", file.mediaType)
	w.Header().Set("Docker-Content-Digest", digestOf(file.content))
	w.Header().Set("Content-Length", fmt.Sprint(len(file.content)))
}

func (r *registry) putManifest(w http.ResponseWriter, request *http.Request) {
	content, err := io.ReadAll(request.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	file := manifestFile{request.Header.Get("Content-Type"), content}
	for _, reference := range []string{request.PathValue("reference"), digestOf(content)} {
		r.manifests[request.PathValue("name")+"@"+reference] = file
	}
	w.Header().Set("Docker-Content-Digest", digestOf(content))
	w.WriteHeader(http.StatusCreated)
}

// manifest returns the manifest of a tag or a digest of a name, parsed into v.
func (r *registry) manifest(t *testing.T, name, reference string, v any) (digest string) {
	t.Helper()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	file, found := r.manifests[name+"@"+reference]
	if !found {
		t.Fatalf("%s@%s was not pushed", name, reference)
	}
	if err := json.Unmarshal(file.content, v); err != nil {
		t.Fatalf("the manifest %s@%s: %v", name, reference, err)
	}
	return digestOf(file.content)
}

// blob is content that was pushed.
func (r *registry) blob(t *testing.T, digest string) []byte {
	t.Helper()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	blob, found := r.blobs[digest]
	if !found {
		t.Fatalf("the blob %s was not pushed", digest)
	}
	return blob
}

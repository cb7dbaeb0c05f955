// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
)

// Log is the audit log of an API server, which continues to grow.
type Log struct {
	file   string
	offset int64
}

// Open reads an audit log from its beginning.
func Open(file string) *Log { return &Log{file: filepath.Clean(file)} }

// Request is a request to which the API server responded, or began to.
type Request struct {
	// User is the client.
	User string
	// Use is the right that it used.
	Use Right
	// Denied means that it was forbidden: by the authorizer, or by admission.
	Denied bool
	// Why is the API server's reason.
	Why string
}

// entry is what matters of an event of audit.k8s.io/v1.
type entry struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// decision is the annotation in which the authorizer's is.
const decision = "authorization.k8s.io/decision"

// Read returns the requests that were logged since the last call. A line that is being written is left for the next.
func (l *Log) Read() ([]Request, error) {
	file, err := os.Open(l.file)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(l.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	l.offset += int64(len(whole))
	var requests []Request
	decoder := json.NewDecoder(bytes.NewReader(whole))
	for {
		e := entry{}
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return requests, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		requests = append(requests, e.request())
	}
}

func (e *entry) request() Request {
	r := Request{User: e.User.Username, Use: Right{Verb: e.Verb}, Why: e.ResponseStatus.Message}
	r.Denied = e.Annotations[decision] == "forbid" || e.ResponseStatus.Code == http.StatusForbidden
	if o := e.ObjectRef; o != nil {
		r.Use.Group, r.Use.Resource, r.Use.Name, r.Use.Namespace = o.APIGroup, o.Resource, o.Name, o.Namespace
		if o.Subresource != "" {
			r.Use.Resource += "/" + o.Subresource
		}
		return r
	}
	r.Use.Path = e.RequestURI
	if asked, err := url.ParseRequestURI(e.RequestURI); err == nil {
		r.Use.Path = asked.Path
	}
	return r
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// maxSize is more than any release is large: a server may send without end.
const maxSize = 1 << 30

// fetcher downloads.
type fetcher struct {
	client *http.Client
	// idle is how long a server may send nothing.
	idle   time.Duration
	mirror string
	log    io.Writer
}

func newFetcher(mirror string) *fetcher {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// Where there is no way to the internet, no one should wait for it.
	transport.DialContext = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	transport.TLSHandshakeTimeout = 5 * time.Second
	transport.ResponseHeaderTimeout = 10 * time.Second
	return &fetcher{client: &http.Client{Transport: transport}, idle: 10 * time.Second, mirror: mirror, log: os.Stderr}
}

// awayError says that the network does not allow a download.
type awayError struct {
	url   string
	cause error
}

func (e *awayError) Error() string { return fmt.Sprintf("%s can't be downloaded: %v", e.url, e.cause) }

func (e *awayError) Unwrap() error { return e.cause }

// sumError says that a server has something else than what is pinned.
type sumError struct {
	url, want, got string
}

func (e *sumError) Error() string {
	return fmt.Sprintf("%s has the SHA-256 %s, but hack/tools/releases has %s: it was not installed; "+
		"find out who is wrong, or build from source with TOOLS_MIRROR=none", e.url, e.got, e.want)
}

// address is where a URL is downloaded from.
func (f *fetcher) address(url string) string {
	if f.mirror == "" {
		return url
	}
	return strings.TrimSuffix(f.mirror, "/") + "/" + strings.TrimPrefix(url, "https://")
}

// get copies what is at a URL. Each error of the network is an awayError.
func (f *fetcher) get(ctx context.Context, url string, to io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	url = f.address(url)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := f.client.Do(request)
	if err != nil {
		return &awayError{url, errors.Unwrap(err)}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return &awayError{url, errors.New(response.Status)}
	}
	// A proxy's page, or a portal's.
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		return &awayError{url, errors.New("the response is a web page")}
	}
	timer := time.AfterFunc(f.idle, func() { cancel(fmt.Errorf("nothing came for %v", f.idle)) })
	defer timer.Stop()
	body := &watched{Reader: response.Body, read: func() { timer.Reset(f.idle) }}
	if _, err = io.Copy(to, io.LimitReader(body, maxSize)); body.failed {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return &awayError{url, err}
	}
	return err
}

// watched tells of each read, and whether one failed.
type watched struct {
	io.Reader
	read   func()
	failed bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.read()
	w.failed = err != nil && !errors.Is(err, io.EOF)
	return n, err
}

// install downloads, verifies and installs a tool. Nothing stays of what has a wrong checksum.
func (f *fetcher) install(ctx context.Context, p pinned, to string) error {
	url, member, err := place(p)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(to), "."+p.tool+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	hash := sha256.New()
	if err := f.get(ctx, url, io.MultiWriter(file, hash)); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != p.sum {
		return &sumError{f.address(url), p.sum, got}
	}
	if member == "" {
		return place755(file, to)
	}
	return unpack(file, member, to)
}

// unpack installs one file of an archive.
func unpack(archive *os.File, member, to string) error {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	files := tar.NewReader(zipped)
	for {
		header, err := files.Next()
		if err != nil {
			return fmt.Errorf("looking for %s in the archive: %w", member, err)
		}
		if header.Typeflag != tar.TypeReg || path.Clean(header.Name) != member {
			continue
		}
		program, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-*")
		if err != nil {
			return err
		}
		defer os.Remove(program.Name())
		defer program.Close()
		if _, err := io.Copy(program, io.LimitReader(files, maxSize)); err != nil {
			return err
		}
		return place755(program, to)
	}
}

// place755 makes a file a program of that name.
func place755(file *os.File, to string) error {
	if err := errors.Join(file.Chmod(0o755), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), to)
}

// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"io"
	"sync/atomic"
)

// MaxHeader bounds the headers of a response, in bytes.
const MaxHeader = 256 << 10

// ErrTooLong is for a response that exceeds its limit.
var ErrTooLong = errors.New("the response is longer than any that is expected")

// ErrTooMany is for a response for which there is no memory now: others are being read.
var ErrTooMany = errors.New("too many long responses are being read at once")

// Budget bounds the memory that the responses of all servers take together, beyond what each may have in any case. It
// is safe for concurrent use.
type Budget struct {
	each int64
	left atomic.Int64
}

// NewBudget returns a budget of so many bytes for all, beside those that each response may have.
func NewBudget(all, each int64) *Budget {
	b := &Budget{each: each}
	b.left.Store(all)
	return b
}

// ReadAll reads a body that has its limit. release is called when the content is not used any more. The error is
// ErrTooMany, or one of the body.
func (b *Budget) ReadAll(body io.Reader) (content []byte, release func(), err error) {
	chunk, taken := make([]byte, min(b.each, 32<<10)), int64(0)
	release = func() { b.left.Add(taken) }
	for {
		n, err := body.Read(chunk)
		content = append(content, chunk[:n]...)
		if beyond := int64(cap(content)) - b.each - taken; beyond > 0 {
			taken += beyond
			if b.left.Add(-beyond) < 0 {
				release()
				return nil, nil, ErrTooMany
			}
		}
		switch {
		case err == io.EOF:
			return content, release, nil
		case err != nil:
			release()
			return nil, nil, err
		}
	}
}

// Body is the body of a response that returns ErrTooLong once it exceeds its limit.
type Body struct {
	io.ReadCloser
	// Remaining is how many bytes may still come.
	Remaining int64
	// Failed is why reading stopped: ErrTooLong, or an error of the connection. nil: it did not fail.
	Failed error
}

// Read reads at most what is left of the limit.
func (b *Body) Read(into []byte) (int, error) {
	if b.Remaining <= 0 {
		b.Failed = ErrTooLong
		return 0, ErrTooLong
	}
	n, err := b.ReadCloser.Read(into[:min(int64(len(into)), b.Remaining)])
	b.Remaining -= int64(n)
	if err != nil && err != io.EOF {
		b.Failed = err
	}
	return n, err
}

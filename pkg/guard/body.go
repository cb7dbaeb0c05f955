// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"io"
)

// MaxHeader bounds the headers of a response, in bytes.
const MaxHeader = 256 << 10

// ErrTooLong is for a response that exceeds its limit.
var ErrTooLong = errors.New("the response is longer than any that is expected")

// Body is the body of a response that returns ErrTooLong once it exceeds its limit.
type Body struct {
	io.ReadCloser
	// Left is how many bytes may still come.
	Left int64
	// Failed is why reading stopped: ErrTooLong, or an error of the connection. nil: it did not fail.
	Failed error
}

// Read reads at most what is left of the limit.
func (b *Body) Read(into []byte) (int, error) {
	if b.Left <= 0 {
		b.Failed = ErrTooLong
		return 0, ErrTooLong
	}
	n, err := b.ReadCloser.Read(into[:min(int64(len(into)), b.Left)])
	b.Left -= int64(n)
	if err != nil && err != io.EOF {
		b.Failed = err
	}
	return n, err
}

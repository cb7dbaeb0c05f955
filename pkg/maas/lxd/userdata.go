// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxDecompressed bounds what compressed user data become.
const maxDecompressed = 8 << 20

// userDataText returns user data, which are bytes, as the text that LXD's configuration can hold and that means the
// same to cloud-init. Bytes that are no text would be replaced on their way to LXD. Compressed user data are
// decompressed, as cloud-init does; other bytes become the only part of a MIME message.
func userDataText(data string) string {
	if plain, ok := decompressed(data); ok && utf8.ValidString(plain) {
		return plain
	}
	if utf8.ValidString(data) {
		return data
	}
	kind, encoded := "text/plain", base64.StdEncoding.EncodeToString([]byte(data))
	if isCompressed(data) {
		kind = "application/gzip"
	}
	const boundary, width = "==CAPMAAS==", 76
	var text strings.Builder
	fmt.Fprintf(&text, "Content-Type: multipart/mixed; boundary=%q\nMIME-Version: 1.0\n\n--%s\nContent-Type: %s\n"+
		"MIME-Version: 1.0\nContent-Transfer-Encoding: base64\n\n", boundary, boundary, kind)
	for len(encoded) > 0 {
		line := encoded[:min(width, len(encoded))]
		encoded = encoded[len(line):]
		text.WriteString(line + "\n")
	}
	fmt.Fprintf(&text, "\n--%s--\n", boundary)
	return text.String()
}

func isCompressed(data string) bool { return strings.HasPrefix(data, "\x1f\x8b") }

// decompressed returns what gzip has compressed, and false if it has not, or that is too large.
func decompressed(data string) (string, bool) {
	if !isCompressed(data) {
		return "", false
	}
	reader, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		return "", false
	}
	var plain bytes.Buffer
	n, err := io.Copy(&plain, io.LimitReader(reader, maxDecompressed+1))
	return plain.String(), err == nil && n <= maxDecompressed
}

// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

func zip(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := io.WriteString(writer, text); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// onlyPart reads a MIME message of one part, as cloud-init does.
func onlyPart(t *testing.T, text string) (kind, content string) {
	t.Helper()
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	_, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(message.Body, parameters["boundary"])
	part, err := parts.NextPart()
	if err != nil {
		t.Fatal(err)
	}
	if encoding := part.Header.Get("Content-Transfer-Encoding"); encoding != "base64" {
		t.Fatalf("the part's encoding is %q", encoding)
	}
	data, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, part))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("there is more than one part: %v", err)
	}
	return part.Header.Get("Content-Type"), string(data)
}

// User data are bytes, and LXD's configuration is text.
func TestUserDataReachLXDAsTheyAre(t *testing.T) {
	const config = "## template: jinja\n#cloud-config\nruncmd: [\"echo <ü> & {{ v1.local_hostname }}\"]\n"
	const several = "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n--b\nContent-Type: text/cloud-config\n\n#cloud-config\n{}\n--b--\n"
	long := strings.Repeat("\xff\x00", 500)
	for name, tc := range map[string]struct{ data, text, kind, part string }{
		"a cloud-config":          {data: config, text: config},
		"several parts":           {data: several, text: several},
		"none":                    {},
		"compressed":              {data: zip(t, config), text: config},
		"several, compressed":     {data: zip(t, several), text: several},
		"another encoding":        {data: "#!/bin/sh\necho \xe4", kind: "text/plain", part: "#!/bin/sh\necho \xe4"},
		"bytes":                   {data: long, kind: "text/plain", part: long},
		"bytes, compressed":       {data: zip(t, long), kind: "application/gzip", part: zip(t, long)},
		"compressed, and cut off": {data: zip(t, config)[:20], kind: "application/gzip", part: zip(t, config)[:20]},
		"compressed, and a bomb":  {data: zip(t, strings.Repeat("a", maxDecompressed+1)), kind: "application/gzip", part: zip(t, strings.Repeat("a", maxDecompressed+1))},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := toInstance(&HostObject{}, VMSpec{UserData: tc.data})
			sent, err := json.Marshal(wanted.Config)
			if err != nil {
				t.Fatal(err)
			}
			stored := map[string]string{}
			if err := json.Unmarshal(sent, &stored); err != nil {
				t.Fatal(err)
			}
			text := stored[lxdhost.KeyUserData]
			if tc.kind == "" {
				if text != tc.text {
					t.Errorf("LXD has %q, want %q", text, tc.text)
				}
				return
			}
			if kind, part := onlyPart(t, text); kind != tc.kind || part != tc.part {
				t.Errorf("LXD has a part of %s, %q; want %s, %q", kind, part, tc.kind, tc.part)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

func TestReceivedReadsEitherProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		file        ImageFile
		inverted    bool
		controllers int
		want        int64
	}{
		"nothing":                  {file: ImageFile{Size: 10}, want: 0},
		"nothing, inverted":        {file: ImageFile{Size: 10}, inverted: true, want: 0},
		"complete":                 {file: ImageFile{Size: 10, Complete: true}, want: 10},
		"a third, inverted":        {file: ImageFile{Size: 3 << 32, Progress: 3}, inverted: true, want: 1 << 32},
		"an odd part, inverted":    {file: ImageFile{Size: 5_368_709_123, Progress: float64(5_368_709_123) / 1_234_567_891}, inverted: true, want: 1_234_567_891},
		"a percentage":             {file: ImageFile{Size: 5_368_709_123, Progress: 100 * float64(1_234_567_891) / 5_368_709_123}, controllers: 1, want: 1_234_567_891},
		"one of three has it all":  {file: ImageFile{Size: 1000, Progress: 100.0 / 3}, controllers: 3, want: 1000},
		"nonsense":                 {file: ImageFile{Size: 1000, Progress: 1e300}, controllers: 1, want: 1000},
		"nonsense below 0":         {file: ImageFile{Size: 1000, Progress: -5}, controllers: 1, want: 0},
		"no controllers are known": {file: ImageFile{Size: 1000, Progress: 50}, want: 500},
	} {
		if got := tc.file.Received(tc.inverted, tc.controllers); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestNewestSetHasFiles(t *testing.T) {
	file := map[string]ImageFile{"root-tgz": {}}
	detail := ImageDetail{Sets: map[string]ImageSet{
		"20261124": {Size: 1, Files: file}, "20261124.9": {Size: 9, Files: file}, "20261124.10": {Size: 10, Files: file, Complete: true},
		"20261125": {}, "20261123.99": {Size: 99, Files: file},
	}}
	if newest, found := detail.Newest(); !found || newest.Size != 10 || !detail.Deployable() {
		t.Errorf("the newest set is %+v (%v), deployable: %v", newest, found, detail.Deployable())
	}
	detail = ImageDetail{Sets: map[string]ImageSet{"20261125": {Complete: true}}}
	if _, found := detail.Newest(); found || detail.Deployable() {
		t.Error("a set without files counts")
	}
}

func TestIDOfAFile(t *testing.T) {
	for uri, want := range map[string]int{
		"/MAAS/api/2.0/boot-resources/12/upload/34/": 34, "": 0, "/": 0, "https://elsewhere.example/x": 0, "/a/-3/": 0,
	} {
		if got := (ImageFile{UploadURI: uri}).ID(); got != want {
			t.Errorf("%q: %d, want %d", uri, got, want)
		}
	}
}

// The web server of MAAS takes no chunked encoding for a piece: it would count as no data.
func TestPieceIsSentAsItIs(t *testing.T) {
	var got string
	client := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprint(r.Header.Get("Content-Type"), r.ContentLength, r.TransferEncoding, string(body))
	})
	if err := client.UploadImagePiece(t.Context(), Unrecorded("a test"), 1, 2, []byte("piece=1&x")); err != nil {
		t.Fatal(err)
	}
	if want := "application/octet-stream9 []piece=1&x"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

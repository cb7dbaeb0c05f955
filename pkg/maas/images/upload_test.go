// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const described = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}, {name: joe, keys: ["joe:token:secret"]}]
images: [{name: ubuntu/jammy}, {name: ubuntu/jammy, architecture: arm64/ga-22.04}]
`

// versions are those whose MAAS stores uploads in other ways.
var versions = []string{"3.3", "3.5", "3.7", "3.8", "4.0"}

// pieces is how many the file of the tests has.
const pieces, pieceSize = 5, 1000

var permit = maas.Unrecorded("a test")

type bed struct {
	*Service
	t   *testing.T
	sim *simulator.Simulator
	url string
}

func newBed(t *testing.T, version string) *bed {
	t.Helper()
	sim, endpoint := simtest.Start(t, described, simulator.Options{Version: version})
	b := &bed{t: t, sim: sim, url: endpoint}
	b.Service = b.as("admin:token:secret")
	return b
}

func (b *bed) as(key string) *Service {
	b.t.Helper()
	client := simtest.Client(b.t, b.url, key)
	s := NewService(client)
	s.poll, s.settle, s.sync, s.pause, s.pieceSize = time.Millisecond, 50*time.Millisecond, 50*time.Millisecond, time.Millisecond, pieceSize
	return s
}

// content is a file of all pieces; each first byte makes another one.
func content(first byte) []byte {
	return append([]byte{first}, bytes.Repeat([]byte("0123456789"), pieces*pieceSize/10)[:pieces*pieceSize-4]...)
}

func uploadOf(file []byte) Upload {
	sum := sha256.Sum256(file)
	return Upload{CreateImageParams: maas.CreateImageParams{
		Name: "custom/u", Architecture: "amd64/generic", FileType: "ddgz", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(file)),
	}}
}

func (b *bed) ensure(file []byte, u Upload) (Result, error) {
	b.t.Helper()
	return b.Ensure(b.t.Context(), permit, bytes.NewReader(file), u, func(int64) {})
}

// must ends the test unless MAAS has the file afterwards, and nothing but it.
func (b *bed) must(file []byte, u Upload) Result {
	b.t.Helper()
	result, err := b.ensure(file, u)
	if err != nil {
		b.t.Fatal(err)
	}
	detail, err := b.client.GetImage(b.t.Context(), result.Image.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	there, found := fileOf(detail)
	if !found || !there.Complete || there.SHA256 != u.SHA256 || !detail.Deployable() || detail.DeployName() != "custom/u" || result.Syncing {
		b.t.Errorf("MAAS has %+v, and the result is %+v", detail, result)
	}
	return result
}

// sentPieces is how many pieces MAAS took.
func (b *bed) sentPieces() (n int) {
	for _, call := range b.sim.Calls().Log {
		if call.Method == http.MethodPut && call.Status == http.StatusOK {
			n++
		}
	}
	return n
}

func (b *bed) fault(f simulator.Fault) {
	b.t.Helper()
	f.Method = http.MethodPut
	if _, err := b.sim.AddFault(f); err != nil {
		b.t.Fatal(err)
	}
}

func TestUpload(t *testing.T) {
	for _, version := range versions {
		b := newBed(t, version)
		file := content(1)
		var last int64
		_, err := b.Ensure(t.Context(), permit, bytes.NewReader(file), uploadOf(file), func(n int64) { last = n })
		if err != nil || last != int64(len(file)) || b.sentPieces() != pieces {
			t.Errorf("MAAS %s: %v after %d bytes in %d pieces", version, err, last, b.sentPieces())
		}
		if again := b.must(file, uploadOf(file)); !again.Already || b.sentPieces() != pieces {
			t.Errorf("MAAS %s: once more %+v, and %d pieces in all", version, again, b.sentPieces())
		}
	}
}

func TestInterruptedUploadGoesOn(t *testing.T) {
	for _, version := range versions {
		b := newBed(t, version)
		file := content(1)
		ctx, stop := context.WithCancel(t.Context())
		_, err := b.Ensure(ctx, permit, bytes.NewReader(file), uploadOf(file), func(n int64) {
			if n == 2*pieceSize {
				stop()
			}
		})
		stop()
		var paused *Error
		if !errors.As(err, &paused) || paused.Remedy != goOnRemedy || !errors.Is(err, context.Canceled) || paused.Offset != 2*pieceSize {
			t.Errorf("MAAS %s: interrupted, it ends with %v", version, err)
		}
		if result := b.must(file, uploadOf(file)); result.Resumed != 2*pieceSize || result.Already || b.sentPieces() != pieces {
			t.Errorf("MAAS %s: %+v, and %d pieces in all", version, result, b.sentPieces())
		}
	}
}

func TestLostPieces(t *testing.T) {
	for name, fault := range map[string]simulator.Fault{
		"response lost":            {DropAfter: true, Every: 2},
		"request lost":             {DropBefore: true, Every: 2},
		"a proxy's timeout":        {Status: http.StatusGatewayTimeout, Late: true, Every: 3},
		"a proxy without a MAAS":   {Status: http.StatusBadGateway, Every: 3},
		"MAAS was busy":            {Status: http.StatusConflict, Body: "<html>", Every: 2},
		"the first one is refused": {DropBefore: true, First: maxFailures - 1},
	} {
		for _, version := range versions {
			t.Run(name+" "+version, func(t *testing.T) {
				b := newBed(t, version)
				if fault.Status == http.StatusConflict {
					b.retryAfter = func(error) time.Duration { return time.Millisecond }
				}
				b.fault(fault)
				file := content(1)
				b.must(file, uploadOf(file))
			})
		}
	}
}

func TestUploadGivesUp(t *testing.T) {
	b := newBed(t, "3.6")
	b.fault(simulator.Fault{DropBefore: true})
	file := content(1)
	_, err := b.ensure(file, uploadOf(file))
	var paused *Error
	if !errors.As(err, &paused) || paused.Remedy != goOnRemedy || !errors.Is(err, maas.Unavailable) || paused.Offset != 0 {
		t.Errorf("%v, want that it paused at 0", err)
	}
}

func TestUploadOfWhatIsOtherwiseThere(t *testing.T) {
	for _, version := range versions {
		b := newBed(t, version)
		one, two := content(1), content(2)
		b.must(one, uploadOf(one))
		var other *Error
		if _, err := b.ensure(two, uploadOf(two)); !errors.As(err, &other) || other.Remedy != replaceRemedy {
			t.Errorf("MAAS %s: %v, want that it has other content", version, err)
		}
		b.must(one, uploadOf(one)) // It is still there.
		u := uploadOf(two)
		u.Replace = true
		if result := b.must(two, u); result.Already || result.Resumed != 0 {
			t.Errorf("MAAS %s: replaced, it is %+v", version, result)
		}
	}
}

// Two uploads at once, or a file that changed meanwhile: MAAS appends whatever it gets.
func TestMixedUploadBeginsAnew(t *testing.T) {
	for _, version := range versions {
		b := newBed(t, version)
		file := content(1)
		u := uploadOf(file)
		u.Name = BareName(u.Name)
		detail, err := b.client.CreateImage(t.Context(), permit, u.CreateImageParams)
		if err != nil {
			t.Fatal(err)
		}
		there, _ := fileOf(detail)
		if err := b.client.UploadImagePiece(t.Context(), permit, detail.ID, there.ID(), []byte("something else")); err != nil {
			t.Fatal(err)
		}
		var refused *Error
		if _, err := b.ensure(file, u); !errors.As(err, &refused) || refused.Remedy != restartRemedy || !errors.Is(err, maas.Invalid) {
			t.Errorf("MAAS %s: %v, want that it refuses the content", version, err)
		}
		if _, err := b.ensure(file, u); !errors.As(err, &refused) || refused.Remedy != restartRemedy {
			t.Errorf("MAAS %s: once more %v, want that it refuses the content", version, err)
		}
		u.Restart = true
		if result := b.must(file, u); result.Resumed != 0 {
			t.Errorf("MAAS %s: anew, %d bytes were there", version, result.Resumed)
		}
	}
}

func TestNamesakeOfAnotherArchitecture(t *testing.T) {
	for version, refused := range map[string]bool{"3.3": true, "3.6.2": true, "3.6.3": false, "3.7.0": true, "3.7.1": false} {
		b := newBed(t, version)
		one, two := content(1), content(2)
		b.must(one, uploadOf(one))
		u := uploadOf(two)
		u.Architecture = "arm64/generic"
		_, err := b.ensure(two, u)
		var clash *Error
		if (errors.As(err, &clash) && clash.Remedy == separateRemedy) != refused || !refused && err != nil {
			t.Errorf("MAAS %s: %v, refused: %v", version, err, refused)
		}
	}
}

func TestSameFileUnderAnotherName(t *testing.T) {
	for _, version := range versions {
		b := newBed(t, version)
		file := content(1)
		b.must(file, uploadOf(file))
		u := uploadOf(file)
		u.Name = "another"
		result, err := b.ensure(file, u)
		var shared *Error
		switch {
		case version == "3.8" || version == "4.0":
			if !errors.As(err, &shared) || shared.Remedy != reuseRemedy {
				t.Errorf("MAAS %s: %v, want a refusal", version, err)
			}
		case err != nil || result.Already != (version == "3.3"):
			t.Errorf("MAAS %s: %+v, %v", version, result, err)
		}
		b.must(file, uploadOf(file))
	}
}

// MAAS 3.8 and newer keep custom/ in a name that other clients upload, and do not find the image when they deploy it.
func TestAnImageThatMAASCannotFindIsNotTheSame(t *testing.T) {
	for _, version := range []string{"3.8", "4.0"} {
		b := newBed(t, version)
		file, other := content(1), content(2)
		theirs := uploadOf(file)
		made, err := b.client.CreateImage(t.Context(), permit, theirs.CreateImageParams)
		if err != nil {
			t.Fatal(err)
		}
		there, _ := fileOf(made)
		if err := b.client.UploadImagePiece(t.Context(), permit, made.ID, there.ID(), file); err != nil {
			t.Fatal(err)
		}
		var misnamed *machine.ImageError
		if err := b.Check(t.Context(), "custom/u", "amd64"); !errors.As(err, &misnamed) || !misnamed.Misnamed {
			t.Errorf("MAAS %s: the check says %v", version, err)
		}
		var shared *Error
		if _, err := b.ensure(file, theirs); !errors.As(err, &shared) || shared.Remedy != renameRemedy {
			t.Errorf("MAAS %s: the same file: %v", version, err)
		}
		if result := b.must(other, uploadOf(other)); result.Already || result.Image.Name != "u" || result.Image.ID == made.ID {
			t.Errorf("MAAS %s: another file: %+v", version, result)
		}
		if err := b.Check(t.Context(), "custom/u", "amd64"); err != nil {
			t.Errorf("MAAS %s: with the new image, the check says %v", version, err)
		}
	}
}

func TestFileThatBecameShorter(t *testing.T) {
	b := newBed(t, "3.6")
	file := content(1)
	_, err := b.ensure(file[:1500], uploadOf(file))
	var paused *Error
	if !errors.As(err, &paused) || paused.Remedy != goOnRemedy || !errors.Is(err, io.EOF) || paused.Offset != pieceSize {
		t.Errorf("%v, want that it paused after one piece", err)
	}
}

func TestCheck(t *testing.T) {
	b := newBed(t, "3.7.0")
	one, two := content(1), content(2)
	b.must(one, uploadOf(one))
	half := uploadOf(two)
	half.Name, half.Architecture = "half", "arm64/generic"
	if _, err := b.client.CreateImage(t.Context(), permit, half.CreateImageParams); err != nil {
		t.Fatal(err)
	}
	var missing *machine.ImageError
	var incomplete *Error
	for name, tc := range map[string]struct {
		image, architecture string
		want                any
	}{
		"synced":             {"ubuntu/jammy", "amd64", nil},
		"any architecture":   {"jammy", "", nil},
		"uploaded":           {"custom/u", "amd64", nil},
		"by its bare name":   {"u", "", nil},
		"not there":          {"custom/none", "", &missing},
		"not for this":       {"custom/u", "arm64", &missing},
		"half of it":         {"custom/half", "arm64", &incomplete},
		"half, of any":       {"half", "", &incomplete},
		"half, and not this": {"half", "amd64", &missing},
	} {
		err := b.Check(t.Context(), tc.image, tc.architecture)
		if (tc.want == nil) != (err == nil) || tc.want != nil && !errors.As(err, tc.want) {
			t.Errorf("%s: %v, want %T", name, err, tc.want)
		}
	}
	half.Name = "u"
	if _, err := b.client.CreateImage(t.Context(), permit, half.CreateImageParams); err != nil {
		t.Fatal(err)
	}
	var clash *Error
	if err := b.Check(t.Context(), "custom/u", "amd64"); !errors.As(err, &clash) || clash.Remedy != separateRemedy {
		t.Errorf("two of one name: %v", err)
	}
}

func TestDigest(t *testing.T) {
	var read int64
	digest, size, err := Digest(t.Context(), strings.NewReader("abc"), func(n int64) { read = n })
	if digest != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || size != 3 || read != 3 || err != nil {
		t.Errorf("%s, %d, %d, %v", digest, size, read, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := Digest(ctx, strings.NewReader("abc"), func(int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

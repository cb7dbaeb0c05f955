// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/golden"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const imagesRegion = testRegion + `
images: [{name: ubuntu/jammy}, {name: ubuntu/jammy, architecture: arm64/ga-22.04}]
machines:
- {names: [metal-a], cores: 8, memory: 16384, disks: [100]}
`

// imageBed is a MAAS, and a directory with files.
type imageBed struct {
	bed
	t   *testing.T
	dir string
}

func newImageBed(t *testing.T) *imageBed {
	t.Helper()
	return &imageBed{newBed(t, imagesRegion, simulator.Options{Version: "3.7.0", TimeScale: 2000}), t, t.TempDir()}
}

func (b *imageBed) file(name, content string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *imageBed) ctl(key string, args ...string) outcome {
	b.t.Helper()
	return call(b.t, "", []string{"MAAS_ENDPOINT=" + b.url, "MAAS_API_KEY=" + key}, append([]string{"capmaasctl", "image"}, args...)...)
}

// checked is what image check says of one image.
func (b *imageBed) checked(args ...string) check {
	b.t.Helper()
	got := b.ctl(plainKey, append([]string{"check", "-o", "json"}, args...)...)
	var r report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || len(r.Checks) != 1 || (got.code == exitOK) != r.OK {
		b.t.Fatalf("%v: %+v (%v)", args, got, err)
	}
	return r.Checks[0]
}

func TestImageUpload(t *testing.T) {
	b := newImageBed(t)
	path := b.file("u.dd.gz", "an image")
	name := "--name=custom/u-2404-k8s-1.35.0"
	for _, said := range []string{"", "already "} {
		got := b.ctl(adminKey, "upload", path, name)
		want := regexp.MustCompile(`^image/custom/u-2404-k8s-1.35.0 ` + said + `uploaded \(amd64/generic, 8 B, sha256 [0-9a-f]{64}\)\n$`)
		if got.code != exitOK || !want.MatchString(got.stdout) || !strings.Contains(got.err, "reading: 8 B of 8 B (100 %)\n") {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	puts := b.Calls().ByKey
	if n := puts[simulator.CallKey{Method: http.MethodPut, Endpoint: "boot-resources/{id}/upload/{file}/", Status: http.StatusOK}]; n != 1 {
		t.Errorf("%d pieces were sent, want 1: %v", n, puts)
	}
	if got := b.checked("custom/u-2404-k8s-1.35.0", "--architecture=amd64"); got.State != stateOK {
		t.Errorf("it is checked: %v", got)
	}
	changed := b.file("u.dd.gz", "another image")
	if got := b.ctl(adminKey, "upload", changed, name); got.code != exitFailed || !strings.Contains(got.err, "--replace") {
		t.Errorf("another file under the name: %+v", got)
	}
	if got := b.ctl(adminKey, "upload", changed, name, "--replace"); got.code != exitOK {
		t.Errorf("replaced: %+v", got)
	}
	if got := b.ctl(adminKey, "upload", changed, name, "--architecture=arm64"); got.code != exitFailed || !strings.Contains(got.err, "3.7.1") {
		t.Errorf("a namesake: %+v", got)
	}
}

func TestImageUploadIsInterrupted(t *testing.T) {
	b := newImageBed(t)
	path := b.file("u.tar.gz", strings.Repeat("x", 9<<20))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b.SetHook(func(c simulator.Call, phase simulator.Phase) error {
		if c.Method == http.MethodPut && phase == simulator.After {
			stop()
		}
		return nil
	})
	upload := func(ctx context.Context) outcome {
		var stdout, stderr bytes.Buffer
		code := run(ctx, []string{"capmaasctl", "image", "upload", path, "--name=u", "--maas-endpoint=" + b.url}, surroundings{
			out: &stdout, err: &stderr, getenv: func(name string) string { return map[string]string{"MAAS_API_KEY": adminKey}[name] },
		})
		return outcome{code, stdout.String(), stderr.String()}
	}
	if got := upload(ctx); got.code != exitFailed || !strings.Contains(got.err, "again: it goes on there") || got.stdout != "" {
		t.Errorf("interrupted: %+v", got)
	}
	if got := b.checked("custom/u"); got.State != stateFailed || !strings.Contains(got.Remedy, "upload") {
		t.Errorf("half of it is checked: %v", got)
	}
	b.SetHook(nil)
	if got := upload(t.Context()); got.code != exitOK || !strings.Contains(got.err, "MAAS had 4.0 MiB of it already.") {
		t.Errorf("once more: %+v", got)
	}
	if got := b.checked("u"); got.State != stateOK {
		t.Errorf("it is checked: %v", got)
	}
	if got := upload(ctx); got.code != exitFailed || !strings.Contains(got.err, "nothing was sent") {
		t.Errorf("interrupted while it reads: %+v", got)
	}
}

func TestImageUploadIsRefused(t *testing.T) {
	b := newImageBed(t)
	path, empty := b.file("u.tar.gz", "x"), b.file("empty.tgz", "")
	sentences := map[string]string{}
	for name, tc := range map[string]struct {
		key  string
		args []string
		code int
	}{
		"no right":        {plainKey, []string{path, "--name=u"}, exitFailed},
		"no file":         {adminKey, []string{path + ".tgz", "--name=u"}, exitUsage},
		"a directory":     {adminKey, []string{b.dir, "--name=u", "--file-type=tgz"}, exitFailed},
		"an empty file":   {adminKey, []string{empty, "--name=u"}, exitFailed},
		"a reserved name": {adminKey, []string{path, "--name=ubuntu"}, exitFailed},
		"an architecture": {adminKey, []string{path, "--name=u", "--architecture=s390x"}, exitFailed},
		"a base image":    {adminKey, []string{path, "--name=u", "--base-image=noble"}, exitFailed},
		"no name":         {adminKey, []string{path}, exitUsage},
		"a bad name":      {adminKey, []string{path, "--name=a/b/c"}, exitUsage},
		"no operand":      {adminKey, []string{"--name=u"}, exitUsage},
		"no type":         {adminKey, []string{b.file("u.iso", "x"), "--name=u"}, exitUsage},
		"a bad type":      {adminKey, []string{path, "--name=u", "--file-type=iso"}, exitUsage},
	} {
		got := b.ctl(tc.key, append([]string{"upload"}, tc.args...)...)
		if got.code != tc.code || got.stdout != "" {
			t.Errorf("%s: %+v, want exit code %d", name, got, tc.code)
		}
		sentences[name] = strings.ReplaceAll(got.err, b.dir, "DIR")
	}
	golden.Sentences(t, "capmaasctl-image-upload.txt", sentences)
}

func TestImageList(t *testing.T) {
	b := newImageBed(t)
	if got := b.ctl(adminKey, "upload", b.file("u.txz", "123456"), "--name=custom/u", "--title=Mine", "--base-image=ubuntu/noble"); got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	m := b.Machines()[0]
	if _, err := b.client(t).DeployMachine(t.Context(), maas.Unrecorded("a test"), m.SystemID, maas.DeployParams{DistroSeries: "custom/u"}); err != nil {
		t.Fatal(err)
	}
	got := b.ctl(adminKey, "list", "-o", "json")
	var r imageReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != exitOK || len(r.Images) != 3 {
		t.Fatalf("%+v (%v)", got, err)
	}
	want := imageRow{
		Name: "custom/u", Architecture: "amd64/generic", Uploaded: true, Title: "Mine", BaseImage: "ubuntu/noble", Size: 6, Complete: true, Machines: 1,
	}
	if diff := cmp.Diff(want, r.Images[0]); diff != "" {
		t.Error(diff)
	}
	got = b.ctl(plainKey, "list")
	line := regexp.MustCompile(`(?m)^NAME +ARCHITECTURE +UPLOADED +SIZE +COMPLETE +MACHINES\ncustom/u +amd64/generic +true +6 B +true +\d+\n`)
	if got.code != exitOK || !line.MatchString(got.stdout) || !strings.HasSuffix(got.stdout, "\n3 image(s), 0 of them incomplete.\n") {
		t.Errorf("%+v", got)
	}
	if got := call(t, "", nil, "capmaasctl", "image", "list", "--maas-endpoint="+b.url, "--maas-api-key=admin:token:wrong"); got.code != exitFailed || !strings.Contains(got.stdout, "key") {
		t.Errorf("with a wrong key: %+v", got)
	}
}

// MAAS 3.8 finds no image that another client uploaded as custom/NAME. What MAAS does not tell of one hides no other.
func TestImageListNamesWhatIsWrong(t *testing.T) {
	b := &imageBed{newBed(t, imagesRegion, simulator.Options{Version: "3.8", TimeScale: 2000}), t, t.TempDir()}
	const content = "123456"
	made, err := b.client(t).CreateImage(t.Context(), maas.Unrecorded("a test"), maas.CreateImageParams{
		Name: "custom/u", Architecture: "amd64/generic", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(content))), Size: int64(len(content)),
	})
	if err != nil {
		t.Fatal(err)
	}
	set, _ := made.Newest()
	for _, file := range set.Files {
		if err := b.client(t).UploadImagePiece(t.Context(), maas.Unrecorded("a test"), made.ID, file.ID(), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	problems := func(code int) map[string]bool {
		t.Helper()
		got := b.ctl(adminKey, "list", "-o", "json")
		var r imageReport
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != code || len(r.Images) != 3 {
			t.Fatalf("%+v (%v), want three images and exit code %d", got, err, code)
		}
		has := map[string]bool{}
		for _, row := range r.Images {
			has[row.Name+" "+row.Architecture] = row.Problem != ""
		}
		return has
	}
	want := map[string]bool{"custom/u amd64/generic": true, "ubuntu/jammy amd64/ga-22.04": false, "ubuntu/jammy arm64/ga-22.04": false}
	if diff := cmp.Diff(want, problems(exitOK)); diff != "" {
		t.Errorf("what has a problem differs (-want +got):\n%s", diff)
	}
	if got := b.ctl(adminKey, "list"); !strings.Contains(got.stdout, "\ncustom/u: ") {
		t.Errorf("the text does not say what is wrong with it: %+v", got)
	}
	all, err := b.client(t).ListImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.ChooseFaults(func(call simulator.Call) *simulator.Fault {
		for _, image := range all {
			if image.Processor() == "arm64" && strings.HasSuffix(call.Path, fmt.Sprintf("/boot-resources/%d/", image.ID)) {
				return &simulator.Fault{Status: http.StatusInternalServerError, Body: "KeyError"}
			}
		}
		return nil
	})
	want["ubuntu/jammy arm64/ga-22.04"] = true
	if diff := cmp.Diff(want, problems(exitFailed)); diff != "" {
		t.Errorf("where one can't be read, what has a problem differs (-want +got):\n%s", diff)
	}
}

func TestImageCheck(t *testing.T) {
	b := newImageBed(t)
	for name, tc := range map[string]struct {
		args  []string
		state state
		says  string
	}{
		"synced":             {[]string{"ubuntu/jammy"}, stateOK, "all of it"},
		"of an architecture": {[]string{"jammy", "--architecture=arm64"}, stateOK, "arm64"},
		"of another":         {[]string{"jammy", "--architecture=s390x"}, stateFailed, "amd64 and arm64"},
		"not there":          {[]string{"custom/none"}, stateFailed, "custom/none"},
	} {
		if got := b.checked(tc.args...); got.State != tc.state || !strings.Contains(got.Found, tc.says) || (got.Remedy != "") != (tc.state != stateOK) {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, args := range [][]string{{}, {"a", "b"}, {"a", "--cluster=b"}, {"--cluster=b", "--architecture=amd64"}, {"a", "-o=xml"}} {
		if got := b.ctl(plainKey, append([]string{"check"}, args...)...); got.code != exitUsage || got.stdout != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestImageCheckOfACluster(t *testing.T) {
	k := newKubernetes(t)
	b := newPlanBed(t, k)
	b.apply(b.manifest(2, 1))
	check := func(code int, cluster string) report {
		t.Helper()
		got := call(t, "", nil, "capmaasctl", "image", "check", "--cluster="+cluster, "--kubeconfig="+b.kubeconfig, "--maas-endpoint="+b.url,
			"--maas-api-key="+adminKey, "--namespace="+b.namespace, "-o", "json")
		var r report
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != code {
			t.Fatalf("%+v (%v), want exit code %d", got, err, code)
		}
		return r
	}
	if r := check(exitOK, "c1"); len(r.Checks) != 2 || r.Checks[0].State != stateOK || r.Checks[0].Name != "ubuntu/jammy" {
		t.Errorf("%+v", r)
	}
	templates := &infrav1.MaasMachineTemplateList{}
	b.must(k.client.List(t.Context(), templates, client.InNamespace(b.namespace)))
	for i := range templates.Items {
		lacking := templates.Items[i].DeepCopy()
		b.must(k.client.Delete(t.Context(), &templates.Items[i]))
		lacking.ResourceVersion, lacking.UID, lacking.Spec.Template.Spec.Image = "", "", "custom/none"
		b.must(k.client.Create(t.Context(), lacking))
	}
	if r := check(exitFailed, b.namespace+"/c1"); len(r.Checks) != 2 || r.Checks[1].State != stateFailed || !strings.Contains(r.Checks[1].Found, "MachineDeployment/") {
		t.Errorf("%+v", r)
	}
	if r := check(exitFailed, "none"); len(r.Checks) != 1 || r.Checks[0].Name != "cluster" {
		t.Errorf("%+v", r)
	}
}

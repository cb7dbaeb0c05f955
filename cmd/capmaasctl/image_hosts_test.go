// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/planner"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const hostImage = "custom/u"

// hostImageBed is a management cluster with two LXDHosts, which are two projects of a real LXD.
type hostImageBed struct {
	kubernetes
	t   *testing.T
	dir string
}

func newHostImageBed(t *testing.T) *hostImageBed {
	t.Helper()
	server := directhost.Start(t)
	lxdtest.Open(t, server.Daemon, server.Address)
	b := &hostImageBed{newKubernetes(t), t, t.TempDir()}
	b.add(server, "lxd-a")
	b.add(server.In("other"), "lxd-b")
	return b
}

func (b *hostImageBed) add(server *directhost.Host, name string) {
	b.t.Helper()
	host, secret := server.Objects(client.ObjectKey{Namespace: "default", Name: name}, "default")
	for _, object := range []client.Object{secret, host} {
		if err := b.client.Create(b.t.Context(), object); err != nil {
			b.t.Fatal(err)
		}
	}
}

// breakHost makes another LXDHost like one, whose Secret is missing.
func (b *hostImageBed) breakHost(like, name string) {
	b.t.Helper()
	host := &infrav1.LXDHost{}
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: like}, host)
	if err == nil {
		broken := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: host.Spec}
		broken.Spec.CredentialsRef = &infrav1.LocalObjectReference{Name: "missing"}
		err = b.client.Create(b.t.Context(), broken)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// disk makes one in the format qcow2; what it has on it makes it another image.
func (b *hostImageBed) disk(content string) string {
	b.t.Helper()
	raw := filepath.Join(b.dir, content)
	err := os.WriteFile(raw, []byte(content), 0o600)
	if err == nil {
		err = os.Truncate(raw, 8<<20)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if out, err := exec.CommandContext(b.t.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, raw+".qcow2").CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	return raw + ".qcow2"
}

func (b *hostImageBed) ctl(args ...string) outcome {
	b.t.Helper()
	args = append([]string{"capmaasctl", "image"}, args...)
	return call(b.t, "", nil, append(args, "--kubeconfig="+b.kubeconfig, "--namespace=default")...)
}

func (b *hostImageBed) upload(file string, args ...string) outcome {
	b.t.Helper()
	return b.ctl(append([]string{"upload", file, "--name=" + hostImage, "--architecture=" + runtime.GOARCH}, args...)...)
}

// states are what image check says: the state of the image on each host, by name.
func (b *hostImageBed) states(code int) map[string]state {
	b.t.Helper()
	got := b.ctl("check", hostImage, "--lxd-host=*", "-o=json")
	var r report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != code {
		b.t.Fatalf("%+v (%v), want exit code %d", got, err, code)
	}
	states := map[string]state{}
	for _, one := range r.Checks {
		if _, host, is := strings.Cut(one.Name, "LXDHost default/"); is {
			states[host] = one.State
		}
		if (one.Remedy != "") != (one.State == stateFailed) {
			b.t.Errorf("%+v", one)
		}
	}
	return states
}

func TestImagesOfLXDHosts(t *testing.T) {
	b := newHostImageBed(t)
	first, second := b.disk("first"), b.disk("second")
	wantStates := func(code int, a, other state) {
		t.Helper()
		if got := b.states(code); got["lxd-a"] != a || got["lxd-b"] != other || len(got) != 2 {
			t.Errorf("the image is %v, want %s and %s", got, a, other)
		}
	}
	wantStates(exitFailed, stateFailed, stateFailed)
	if got := b.upload(first, "--lxd-host=lxd-a"); got.code != exitOK || !strings.Contains(got.err, "uploading to lxd-a: ") {
		t.Fatalf("%+v", got)
	}
	wantStates(exitFailed, stateOK, stateFailed)
	got := b.upload(first, "--lxd-host=lxd-b,default/lxd-a")
	want := regexp.MustCompile(`^image/custom/u already uploaded to LXDHost lxd-a \(.*\)\nimage/custom/u copied from LXDHost lxd-a to LXDHost lxd-b \(.* fingerprint [0-9a-f]{64}\)\n$`)
	if got.code != exitOK || !want.MatchString(got.stdout) {
		t.Errorf("%+v, want %s", got, want)
	}
	wantStates(exitOK, stateOK, stateOK)

	if got := b.upload(second, "--lxd-host=*"); got.code != exitFailed || strings.Count(got.err, "--replace") != 2 || got.stdout != "" {
		t.Errorf("another disk under the name: %+v", got)
	}
	if got := b.upload(second, "--lxd-host=lxd-b", "--replace"); got.code != exitOK {
		t.Errorf("it replaces the first: %+v", got)
	}
	wantStates(exitFailed, stateOK, stateFailed)
}

func TestAnImageForLXDHostsIsRefused(t *testing.T) {
	b := newHostImageBed(t)
	disk := b.disk("a")
	b.breakHost("lxd-a", "lxd-broken")
	processors := []string{"amd64", "arm64"}
	other := processors[1-slices.Index(processors, runtime.GOARCH)]
	for name, tc := range map[string]struct {
		args []string
		code int
		said string
	}{
		"a raw disk":              {[]string{strings.TrimSuffix(disk, ".qcow2"), "--lxd-host=lxd-a"}, exitFailed, "qemu-img convert"},
		"no such host":            {[]string{disk, "--lxd-host=lxd-c"}, exitFailed, "lxd-c"},
		"another architecture":    {[]string{disk, "--lxd-host=lxd-a", "--architecture=" + other}, exitFailed, "--architecture"},
		"a bad name":              {[]string{disk, "--lxd-host=a/b/c"}, exitUsage, "a/b/c"},
		"what is for MAAS":        {[]string{disk, "--lxd-host=lxd-a", "--title=x", "--base-image=y"}, exitUsage, "--title is for MAAS"},
		"metadata for MAAS":       {[]string{disk, "--lxd-metadata=" + disk}, exitUsage, "--lxd-host"},
		"metadata that are none":  {[]string{disk, "--lxd-metadata=" + disk, "--lxd-host=lxd-a"}, exitFailed, "not a tarball"},
		"metadata that are away":  {[]string{disk, "--lxd-metadata=" + disk + ".none", "--lxd-host=lxd-a"}, exitFailed, "no such file"},
		"a directory":             {[]string{b.dir, "--lxd-host=lxd-a"}, exitFailed, "no regular file"},
		"a host without its keys": {[]string{disk, "--lxd-host=lxd-broken"}, exitFailed, "conditions"},
	} {
		args := append([]string{"upload", "--name=" + hostImage, "--architecture=" + runtime.GOARCH}, tc.args...)
		if got := b.ctl(args...); got.code != tc.code || !strings.Contains(got.err, tc.said) {
			t.Errorf("%s: %+v, want exit code %d, and %q", name, got, tc.code, tc.said)
		}
	}
	if got := b.ctl("check", hostImage, "--lxd-host=lxd-a", "--architecture=amd64"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
	if got := b.ctl("check", "--cluster=c", "--lxd-host=lxd-a"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}

// A cluster's VMs need their image on each direct host, with a disk that is not larger than theirs; its machines in
// MAAS.
func TestImageCheckOfAClusterOnLXDHosts(t *testing.T) {
	server := directhost.Start(t)
	k := newKubernetes(t)
	region := strings.Split(planRegion, "vm_hosts:")[0]
	b := &planBed{bed: newBed(t, region, simulator.Options{Version: "4.0", TimeScale: 2000}), kubernetes: k, t: t, namespace: "default", dir: t.TempDir()}
	host, secret := server.Objects(client.ObjectKey{Namespace: b.namespace, Name: "lxd-a"}, "zone-a")
	b.must(k.client.Create(t.Context(), secret))
	b.must(k.client.Create(t.Context(), host))
	b.apply(b.manifest(2, 1))
	check := func(onHost state) {
		t.Helper()
		got := call(t, "", nil, "capmaasctl", "image", "check", "--cluster=c1", "--kubeconfig="+b.kubeconfig, "--maas-endpoint="+b.url,
			"--maas-api-key="+adminKey, "--namespace="+b.namespace, "-o", "json")
		var r report
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || (got.code == exitOK) != (onHost == stateOK) {
			t.Fatalf("%+v (%v)", got, err)
		}
		states := map[string]state{}
		for _, one := range r.Checks {
			states[one.Name] = one.State
		}
		if states["ubuntu/jammy on LXDHost default/lxd-a"] != onHost || states["ubuntu/jammy"] != stateOK {
			t.Errorf("%v, want that the host is %s", states, onHost)
		}
	}
	check(stateFailed)
	b.must(server.AddImage(t.Context(), "ubuntu/jammy"))
	check(stateOK)
}

// What keeps an image from being used is said, with its remedy.
func TestWhatIsWrongWithAnImageOnAHost(t *testing.T) {
	image := func(fingerprint, architecture string, disk int64) lxdhost.Reading {
		return lxdhost.Reading{
			Capacity: lxdhost.Capacity{Architecture: "x86_64"},
			Images:   []lxdhost.Image{{Fingerprint: fingerprint, Aliases: []string{"u"}, Architecture: architecture, DiskBytes: disk}},
		}
	}
	for name, tc := range map[string]struct {
		reading lxdhost.Reading
		problem error
		state   state
		says    string
	}{
		"as it should be":           {image("1", "x86_64", 20e9), nil, stateOK, "18.6 GiB"},
		"of an unknown size":        {image("1", "x86_64", 0), nil, stateOK, "was not told"},
		"larger than the root disk": {image("1", "x86_64", 20e9+1), nil, stateFailed, "20 GB"},
		"for another architecture":  {image("1", "aarch64", 0), nil, stateFailed, "aarch64"},
		"another one":               {image("2", "x86_64", 0), nil, stateFailed, "another one"},
		"not there":                 {lxdhost.Reading{}, nil, stateFailed, "missing"},
		"a host that is away":       {lxdhost.Reading{}, &lxdhost.Error{Kind: lxdhost.KindUnreachable, Problem: "silence"}, stateFailed, "silence"},
	} {
		var found checks
		found.onHosts("u", 20, []planner.ImageHost{{Reading: image("1", "x86_64", 0)}, {Reading: tc.reading, Problem: tc.problem}})
		if len(found) != 3 || found[0].State != stateOK || found[2].State != stateUnknown {
			t.Fatalf("%s: %+v", name, found)
		}
		if got := found[1]; got.State != tc.state || !strings.Contains(got.Found, tc.says) || (got.Remedy == "") != (tc.state == stateOK) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

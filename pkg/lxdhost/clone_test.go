// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
)

const (
	callsOfClone      = 3
	callsOfCloneAgain = 2
	// imageBytes is the size of the disk in the tests' images.
	imageBytes = 32 << 20
)

// architecture is this computer's, in Linux's words.
var architecture = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]

// aDisk is an empty disk in the format qcow2. Disks with other content are other images.
func (b *bed) aDisk(content string) []byte {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "disk")
	b.must(os.WriteFile(path, []byte(content), 0o600))
	b.must(os.Truncate(path, imageBytes))
	if out, err := exec.CommandContext(b.t.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", path, path+".qcow2").CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	disk, err := os.ReadFile(path + ".qcow2")
	b.must(err)
	return disk
}

// upload returns the fingerprint.
func (b *bed) upload(alias, content string) string {
	b.t.Helper()
	image := b.anImage(content)
	b.must(b.host.Upload(b.t.Context(), alias, image, ignore))
	return image.Fingerprint
}

func (b *bed) reading() Reading {
	b.t.Helper()
	seen, err := b.host.read(b.t.Context())
	b.must(err)
	return seen
}

// cloned is spec with an image.
func cloned(name, fingerprint string) Spec {
	s := spec(name)
	s.Boot = &Boot{
		Fingerprint: fingerprint, UserData: "#cloud-config\npassword: secret\n", NetworkConfig: "version: 2\n", VendorData: "#cloud-config\n{}\n",
	}
	return s
}

func TestTheLifeOfAClone(t *testing.T) {
	b := newBed(t)
	fingerprint := b.upload("custom/tiny", "a")
	s, seen := cloned("vm", fingerprint), b.reading()
	for _, calls := range []int{callsOfClone, callsOfCloneAgain} {
		b.counted("Clone", calls, func() error { return b.host.Clone(t.Context(), s, seen) })
	}
	b.checkClone(s)
	b.counted("Start", callsOfSwitching, func() error { return b.host.Start(t.Context(), "vm", ours) })
	seed, err := os.ReadFile(filepath.Join(b.daemon.Dir(), "virtual-machines", project+"_vm", "config.iso"))
	b.must(err)
	for _, want := range []string{s.Boot.UserData, s.Boot.NetworkConfig, s.Boot.VendorData} {
		if !bytes.Contains(seed, []byte(want)) {
			t.Errorf("the VM does not get %q", want)
		}
	}
	seen = b.reading()
	if vm := seen.VMs[0]; len(seen.VMs) != 1 || vm.State != StateRunning || seen.MACs[s.MAC.String()] != "vm" || seen.Disk[pool] != s.Root.Bytes {
		t.Errorf("read: %+v", seen)
	}
	if image := seen.Image("custom/tiny"); image.Fingerprint != fingerprint || image.Architecture != architecture {
		t.Errorf("the image is %+v", image)
	}
	b.counted("Delete", callsOfDeleteRunning, func() error { return b.host.Delete(t.Context(), "vm", ours, time.Time{}) })
	b.wantGone("vm")
}

// checkClone wants the VM that was asked for: from its disk first, with what cloud-init reads.
func (b *bed) checkClone(s Spec) {
	b.t.Helper()
	found := b.instance(s.Name)
	for key, want := range map[string]string{
		"cloud-init.user-data": s.Boot.UserData, "cloud-init.network-config": s.Boot.NetworkConfig, "cloud-init.vendor-data": s.Boot.VendorData,
		"volatile.base_image": s.Boot.Fingerprint, "limits.cpu": "1", "security.secureboot": "false", keyOwner: ours.Owner, keyMachine: ours.Machine,
	} {
		if found.Config[key] != want {
			b.t.Errorf("%s is %q, want %q", key, found.Config[key], want)
		}
	}
	want := map[string]map[string]string{
		"root":       {"type": "disk", "path": "/", "pool": pool, "size": fmt.Sprint(s.Root.Bytes), "boot.priority": "1"},
		"eth0":       {"type": "nic", "name": "eth0", "nictype": "bridged", "parent": "br0", "hwaddr": s.MAC.String(), "boot.priority": "0"},
		"cloud-init": {"type": "disk", "source": "cloud-init:config"},
	}
	if diff := cmp.Diff(want, found.ExpandedDevices); diff != "" {
		b.t.Errorf("devices (-want +got):\n%s", diff)
	}
	if found.StatusCode != api.Stopped || found.Ephemeral || len(found.Profiles) > 0 {
		b.t.Errorf("it is %s, ephemeral %v, with the profiles %v", found.Status, found.Ephemeral, found.Profiles)
	}
}

func TestACloneWithFurtherDisks(t *testing.T) {
	b := newBed(t)
	s := cloned("vm", b.upload("tiny", "a"))
	s.Disks = []Disk{{pool, 2 << 20}}
	b.counted("Clone", callsOfClone+callsOfADisk+callsOfAddingDisks, func() error { return b.host.Clone(t.Context(), s, b.seenBefore()) })
	if got := b.volumes(); len(got) != 1 {
		t.Errorf("volumes %v", got)
	}
	b.must(b.host.Start(t.Context(), "vm", ours))
	b.must(b.host.Delete(t.Context(), "vm", ours, time.Time{}))
	if left := b.volumes(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// seenBefore is reading by LXD's socket's side: its calls are not counted.
func (b *bed) seenBefore() Reading {
	b.t.Helper()
	seen, err := b.connect(b.direct).read(b.t.Context())
	b.must(err)
	return seen
}

func TestCloneChecksWhatLXDDoesNot(t *testing.T) {
	b := newBed(t)
	fingerprint := b.upload("tiny", "a")
	b.create(spec("first"))
	b.foreign(b.server, "theirs", theirs.config())
	seen := b.reading()
	for name, test := range map[string]struct {
		change func(*Spec)
		want   Kind
	}{
		"a missing bridge":           {func(s *Spec) { s.Bridge = "br7" }, KindBridge},
		"a missing pool":             {func(s *Spec) { s.Root.Pool = "missing" }, KindPool},
		"a MAC address in use":       {func(s *Spec) { s.MAC = DeriveMAC(ours.Owner, "first") }, KindMACInUse},
		"more cores than there are":  {func(s *Spec) { s.Cores, s.Overcommit = seen.Cores, Overcommit{Memory: 100} }, KindNoRoom},
		"more memory than there is":  {func(s *Spec) { s.MemoryMiB, s.Overcommit.Memory = seen.MemoryMiB, 1 }, KindNoRoom},
		"a disk that is too large":   {func(s *Spec) { s.Root.Bytes = seen.Pools[0].TotalBytes }, KindNoRoom},
		"another's name":             {func(s *Spec) { s.Name = "theirs" }, KindConflict},
		"no image":                   {func(s *Spec) { s.Boot = nil }, KindInvalid},
		"a part of a fingerprint":    {func(s *Spec) { s.Boot.Fingerprint = fingerprint[:12] }, KindInvalid},
		"an alias":                   {func(s *Spec) { s.Boot.Fingerprint = "tiny" }, KindInvalid},
		"an image that is not there": {func(s *Spec) { s.Boot.Fingerprint = strings.Repeat("ab", 32) }, KindOther},
		"a disk below the image's":   {func(s *Spec) { s.Root.Bytes = imageBytes / 2 }, KindOther},
		"too late":                   {func(s *Spec) { s.SendBefore = time.Now().Add(-time.Second) }, KindTooLate},
		"its own device":             {func(s *Spec) { s.Devices = map[string]map[string]string{"cloud-init": {"type": "none"}} }, KindInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := cloned("second", fingerprint)
			test.change(&s)
			wantKind(t, b.host.Clone(t.Context(), s, seen), test.want)
			if vm := b.in(t).instance("second"); vm != nil {
				t.Errorf("there is %+v", vm)
			}
		})
	}
}

// A VM that a lost call made, at once or late, is found by the next one; it is stopped until it is started.
func TestACloneIsResumedWhereverItWasCutOff(t *testing.T) {
	b := newBed(t)
	fingerprint := b.upload("tiny", "a")
	cases(t, 1, func(t *testing.T, name string, change middleware, seen func() int) {
		b := b.in(t)
		s, room := cloned(name, fingerprint), b.seenBefore()
		b.between.set(change)
		err := b.host.Clone(t.Context(), s, room)
		b.between.set(nil)
		seen()
		if kind := KindOf(err); !slices.Contains(busyWithWhatWasLost, kind) {
			t.Errorf("the error is of the kind %s: %v", kind, err)
		}
		b.eventually(func() error { return b.host.Clone(t.Context(), s, room) })
		b.checkClone(s)
		b.eventually(func() error { return b.host.Delete(t.Context(), name, ours, time.Time{}) })
		b.wantGone(name)
	})
}

// LXD looks into an image only when a VM is made from it.
func TestAnImageThatIsNoneMakesNoVM(t *testing.T) {
	b := newBed(t)
	image, err := tarball(section("no disk"), architecture, 7)
	b.must(err)
	b.must(image.sum(t.Context(), ignore))
	b.must(b.host.Upload(t.Context(), "broken", image, ignore))
	wantKind(t, b.host.Clone(t.Context(), cloned("vm", image.Fingerprint), b.reading()), KindOther)
	b.wantGone("vm")
}

// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// imageBytes is the size of the disk in the tests' images.
const imageBytes = 32 << 20

// architecture is this computer's, in Linux's words.
var architecture = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]

// aDisk is an empty disk in the format qcow2. Disks with other content are other images.
func (b *bed) aDisk(content string) []byte {
	b.t.Helper()
	disk, err := diskIn(b.t.Context(), b.t.TempDir(), content)
	b.must(err)
	return disk
}

func diskIn(ctx context.Context, dir, content string) ([]byte, error) {
	path := filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Truncate(path, imageBytes)); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", path, path+".qcow2").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(path + ".qcow2")
}

// tiny is the image of spec.
var tiny = sync.OnceValue(func() *ImageFile {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tiny-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	disk, err := diskIn(ctx, dir, "of specs")
	if err != nil {
		panic(err)
	}
	image, err := NewImageFile(ctx, section(string(disk)), nil, architecture, ignore)
	if err != nil {
		panic(err)
	}
	return image
})

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
	s.Image = fingerprint
	s.Config = map[string]string{KeyUserData: "#cloud-config\npassword: secret\n", KeyNetworkConfig: "version: 2\n"}
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
	for what, change := range map[string]func(*Spec){
		"another address": func(s *Spec) { s.Config = map[string]string{KeyNetworkConfig: "version: 1\n"} },
		"another image":   func(s *Spec) { s.Image = tiny().Fingerprint },
		"another device":  func(s *Spec) { s.Devices = map[string]map[string]string{"gpu0": {"type": "gpu"}} },
		"another profile": func(s *Spec) { s.Profiles = []string{"gpu"} },
		"secure boot":     func(s *Spec) { s.SecureBoot = true },
	} {
		other := s
		change(&other)
		err := b.host.Clone(t.Context(), other, seen)
		wantKind(t, err, KindOutdated)
		var failed *Error
		if !errors.As(err, &failed) || !failed.Sent {
			t.Errorf("%s: the VM is there, and the error is %v", what, err)
		}
	}
	b.counted("Start", callsOfSwitching, func() error { return b.host.Start(t.Context(), "vm", ours, time.Time{}) })
	seed, err := os.ReadFile(filepath.Join(b.daemon.Dir(), "virtual-machines", project+"_vm", "config.iso"))
	b.must(err)
	for _, want := range s.Config {
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
	config := maps.Clone(found.Config)
	maps.DeleteFunc(config, func(key, _ string) bool {
		return key != keyBaseImage && (strings.HasPrefix(key, "volatile.") || strings.HasPrefix(key, "image."))
	})
	wantConfig := map[string]string{
		KeyUserData: s.Config[KeyUserData], KeyNetworkConfig: s.Config[KeyNetworkConfig],
		keyBaseImage: s.Image, "limits.cpu": "1", "limits.memory": "268435456",
		keyOwner: ours.Owner, keyMachine: ours.Machine, keyManagement: ours.Management,
	}
	server, _, err := b.all.GetServer()
	b.must(err)
	lxdapi.TraitsOf(server).SetBoot(wantConfig, s.SecureBoot)
	if diff := cmp.Diff(wantConfig, config); diff != "" {
		b.t.Errorf("config (-want +got):\n%s", diff)
	}
	want := map[string]map[string]string{
		"root":       {"type": "disk", "path": "/", "pool": pool, "size": fmt.Sprint(s.Root.Bytes), "boot.priority": "1"},
		"eth0":       {"type": "nic", "name": "eth0", "nictype": "bridged", "parent": "br0", "hwaddr": s.MAC.String(), "boot.priority": "0"},
		"cloud-init": {"type": "disk", "source": "cloud-init:config"},
	}
	maps.Copy(want, s.Devices)
	if diff := cmp.Diff(want, found.ExpandedDevices); diff != "" {
		b.t.Errorf("devices (-want +got):\n%s", diff)
	}
	if found.StatusCode != api.Stopped || found.Ephemeral || len(found.Profiles) > 0 {
		b.t.Errorf("it is %s, ephemeral %v, with the profiles %v", found.Status, found.Ephemeral, found.Profiles)
	}
}

// LXD takes secure boot and a TPM when the VM is made. What it lacks for them, and what the image says, it sees when it
// starts the VM: of these it tells beforehand what the image says alone.
func TestSecureBootAndATPM(t *testing.T) {
	for name, version := range map[string]string{"LXD as it is": "", "LXD 6.9": "6.9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bedOf(t, lxdbed.Options{Plays: version})
			signed, unsigned := b.upload("signed", "a"), b.upload("unsigned", "b")
			image, etag, err := b.server.GetImage(unsigned)
			b.must(err)
			put := image.Writable()
			put.Properties[keySecureBoot] = "False"
			b.must(b.server.UpdateImage(unsigned, put, etag))
			seen := b.reading()
			if seen.Image("signed").Unsigned || !seen.Image("unsigned").Unsigned {
				t.Errorf("the images are %+v", seen.Images)
			}
			_, missing := exec.LookPath("swtpm")
			for name, of := range map[string]struct {
				image  string
				tpm    bool
				starts bool
			}{
				"secure":   {signed, false, true},
				"measured": {signed, true, missing == nil},
				"refused":  {unsigned, false, false},
			} {
				s := cloned(name, of.image)
				s.SecureBoot = true
				if of.tpm {
					s.Devices = map[string]map[string]string{"tpm0": {"type": "tpm"}}
				}
				b.must(b.host.Clone(t.Context(), s, seen))
				b.checkClone(s)
				err := b.host.Start(t.Context(), name, ours, time.Time{})
				if of.starts {
					b.must(err)
				} else {
					wantKind(t, err, KindOther)
				}
				if started := isRunning(b.instance(name)); started != of.starts {
					t.Errorf("%s runs: %t", name, started)
				}
				s.SecureBoot = false
				wantKind(t, b.host.Clone(t.Context(), s, seen), KindOutdated)
				b.must(b.host.Delete(t.Context(), name, ours, time.Time{}))
			}
		})
	}
}

func TestCloneChecksWhatLXDDoesNot(t *testing.T) {
	b := newBed(t)
	fingerprint := b.upload("tiny", "a")
	b.must(b.server.CreateProfile(api.ProfilesPost{Name: "four", ProfilePut: api.ProfilePut{
		Config: map[string]string{"limits.cpu": "4"}, Devices: map[string]map[string]string{"extra": {"type": "none"}},
	}}))
	b.create(spec("first"))
	b.foreign(b.server, "theirs", theirs.config())
	b.foreign(b.server, "chosen", map[string]string{"volatile.eth1.hwaddr": "00:16:3e:00:00:01"})
	seen := b.reading()
	for name, test := range map[string]struct {
		change func(*Spec)
		want   Kind
	}{
		"a network that is no bridge": {func(s *Spec) { s.Bridge = "eth0" }, KindBridge},
		"a missing pool of a disk":    {func(s *Spec) { s.Disks = []Disk{{"missing", 1 << 20}} }, KindPool},
		"one that LXD remembers":      {func(s *Spec) { s.MAC = []byte{0, 0x16, 0x3e, 0, 0, 1} }, KindMACInUse},
		"more than may be promised":   {func(s *Spec) { s.Cores, s.Overcommit.Cores = 2*seen.Cores, 2 }, KindNoRoom},
		"disks that are too large": {func(s *Spec) {
			s.Root.Bytes, s.Overcommit.Disk = seen.Pools[0].TotalBytes, 2
			s.Disks = []Disk{{pool, seen.Pools[0].TotalBytes}}
		}, KindNoRoom},
		"a name that LXD refuses":    {func(s *Spec) { s.Name = "no_name" }, KindInvalid},
		"no name":                    {func(s *Spec) { s.Name = "" }, KindInvalid},
		"no owner":                   {func(s *Spec) { s.Marks.Owner = "" }, KindInvalid},
		"no machine":                 {func(s *Spec) { s.Marks.Machine = "" }, KindInvalid},
		"no bridge":                  {func(s *Spec) { s.Bridge = "" }, KindInvalid},
		"no cores":                   {func(s *Spec) { s.Cores = 0 }, KindInvalid},
		"no size":                    {func(s *Spec) { s.Root.Bytes = 0 }, KindInvalid},
		"a MAC address of many":      {func(s *Spec) { s.MAC = []byte{1, 0, 0, 0, 0, 1} }, KindInvalid},
		"no MAC address":             {func(s *Spec) { s.MAC = nil }, KindInvalid},
		"a ratio below 0":            {func(s *Spec) { s.Overcommit.Disk = -1 }, KindInvalid},
		"its own device twice":       {func(s *Spec) { s.Devices = map[string]map[string]string{"eth0": {"type": "none"}} }, KindInvalid},
		"a missing profile":          {func(s *Spec) { s.Profiles = []string{"missing"} }, KindOther},
		"a device that is none":      {func(s *Spec) { s.Devices = map[string]map[string]string{"a": {"type": "wrong"}} }, KindOther},
		"a missing bridge":           {func(s *Spec) { s.Bridge = "br7" }, KindBridge},
		"a missing pool":             {func(s *Spec) { s.Root.Pool = "missing" }, KindPool},
		"a MAC address in use":       {func(s *Spec) { s.MAC = DeriveMAC(ours.Owner, "first") }, KindMACInUse},
		"more cores than there are":  {func(s *Spec) { s.Cores, s.Overcommit = seen.Cores, Overcommit{Memory: 100} }, KindNoRoom},
		"more memory than there is":  {func(s *Spec) { s.MemoryMiB, s.Overcommit.Memory = seen.MemoryMiB, 1 }, KindNoRoom},
		"a disk that is too large":   {func(s *Spec) { s.Root.Bytes = seen.Pools[0].TotalBytes }, KindNoRoom},
		"another's name":             {func(s *Spec) { s.Name = "theirs" }, KindConflict},
		"no image":                   {func(s *Spec) { s.Image = "" }, KindInvalid},
		"a part of a fingerprint":    {func(s *Spec) { s.Image = fingerprint[:12] }, KindInvalid},
		"an alias":                   {func(s *Spec) { s.Image = "tiny" }, KindInvalid},
		"an image that is not there": {func(s *Spec) { s.Image = strings.Repeat("ab", 32) }, KindOther},
		"a disk below the image's":   {func(s *Spec) { s.Root.Bytes = imageBytes / 2 }, KindOther},
		"too late":                   {func(s *Spec) { s.SendBefore = time.Now().Add(-time.Second) }, KindTooLate},
		"its own device":             {func(s *Spec) { s.Devices = map[string]map[string]string{"cloud-init": {"type": "none"}} }, KindInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := cloned("second", fingerprint)
			test.change(&s)
			wantKind(t, b.host.Clone(t.Context(), s, seen), test.want)
			if vms, err := b.host.List(t.Context()); err != nil || len(vms) != 2 {
				t.Errorf("there are %v, %v", vms, err)
			}
		})
	}
	s := spec("second")
	s.Profiles, s.Cores = []string{"four"}, 2
	s.Devices = map[string]map[string]string{"extra": {"type": "none"}, "more": {"type": "none"}}
	if vm := b.create(s); vm.ExpandedConfig["limits.cpu"] != "2" {
		t.Errorf("with a profile: %+v", vm)
	}
	if found := b.instance("second"); len(found.ExpandedDevices) != 5 {
		t.Errorf("devices %v", found.ExpandedDevices)
	}
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

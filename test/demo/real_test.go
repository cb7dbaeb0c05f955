// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// The story with real nodes ends well, and leaves nothing of what root can leave: processes, mounts, control groups,
// network devices, loop devices, files, and settings of the kernel that are not as they were.
func TestTheStoryWithRealNodesLeavesNothing(t *testing.T) {
	if os.Getenv("CAPMAAS_REAL_NODES") != "1" {
		t.Skip("CAPMAAS_REAL_NODES is not 1 (`make real` sets it, and builds what real nodes need)")
	}
	// Whatever loses its parent becomes a child of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	demo, files := filepath.Join(t.TempDir(), "demo"), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", demo, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := look(t, files)
	story := exec.CommandContext(t.Context(), demo, "--once", "--real")
	story.Env, story.Dir = append(os.Environ(), "TMPDIR="+files), filepath.Join("..", "..")
	out, err := story.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
	// For a moment, what other programs of this computer have on their way may look as if it were left.
	err = eventually.Wait(t.Context(), "nothing to be left", func() (bool, string, error) {
		added, changed := compare(before, look(t, files))
		return len(added)+len(changed) == 0, strings.Join(append(added, changed...), ", "), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// children are this process's, with their commands.
func children(t *testing.T) (all []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		pids, _ := os.ReadFile(list) // The thread may have ended.
		for _, pid := range strings.Fields(string(pids)) {
			command, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			all = append(all, pid+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return all
}

// look returns what there is on this computer, with a value where something has one. What belongs to an LXD that runs is
// not looked at.
func look(t *testing.T, files string) map[string]string {
	t.Helper()
	all := map[string]string{}
	live := liveDirs(t)
	add := func(kind, name, value string) {
		if !slices.ContainsFunc(live, func(dir string) bool { return strings.HasPrefix(name+"/", dir+"/") }) {
			all[kind+" "+name] = value
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		add("the mount", strings.Fields(line)[4], "")
	}
	for kind, pattern := range map[string]string{
		"the directory": "/tmp/lxd-*", "the file": files + "/*", "the network device": "/sys/class/net/*", "the network": "/run/netns/*",
	} {
		for _, name := range glob(t, pattern) {
			add(kind, name, "")
		}
	}
	for _, name := range glob(t, "/sys/block/loop*/loop/backing_file") {
		if file, err := os.ReadFile(name); err == nil {
			add("the loop device of", strings.TrimSpace(string(file)), "")
		}
	}
	for name, value := range walk(t, "/sys/fs/cgroup", func(name string, entry fs.DirEntry) bool { return entry.IsDir() && strings.HasPrefix(name, "lxc.") }) {
		if len(live) == 0 || !ofOthers(t, name) {
			add("the control group", name, value)
		}
	}
	for name, value := range walk(t, "/proc/sys", func(name string, entry fs.DirEntry) bool { return !entry.IsDir() && !slices.Contains(restless, name) }) {
		add("the setting", name, value)
	}
	return all
}

// ofOthers reports whether a control group may be of an LXD that runs: a process is in it, or LXC shares it.
func ofOthers(t *testing.T, cgroup string) bool {
	t.Helper()
	for _, processes := range walk(t, cgroup, func(name string, _ fs.DirEntry) bool { return name == "cgroup.procs" }) {
		if processes != "" {
			return true
		}
	}
	return filepath.Base(cgroup) == "lxc.pivot"
}

// restless are files below /proc/sys whose content changes by itself.
var restless = []string{
	"dentry-state", "file-nr", "inode-nr", "inode-state", "ns_last_pid", "nr", "uuid", "entropy_avail", "nf_conntrack_count", "aio-nr", "max_newidle_lb_cost",
}

// liveDirs are the directories of LXDs whose programs run: they hold a lock.
func liveDirs(t *testing.T) (live []string) {
	t.Helper()
	for _, dir := range glob(t, "/tmp/lxd-*") {
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil {
			live = append(live, dir)
		}
		_ = lock.Close()
	}
	return live
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// walk returns the entries below a directory that are wanted, with the contents of files that can be read.
func walk(t *testing.T, root string, wanted func(name string, entry fs.DirEntry) bool) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil { // It has gone meanwhile.
			return nil //nolint:nilerr // others' work
		}
		if wanted(entry.Name(), entry) {
			content, _ := os.ReadFile(path) // Some can only be written, and directories can't be read.
			all[path] = string(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// compare returns what was added, and what has another value.
func compare(before, after map[string]string) (added, changed []string) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, known := before[name]
		switch {
		case !known && !strings.HasPrefix(name, "the setting"): // Settings come with modules of the kernel.
			added = append(added, name)
		case known && was != after[name]:
			changed = append(changed, name+" was "+was+", is "+after[name])
		}
	}
	return added, changed
}

func TestWhatIsLeftIsSeen(t *testing.T) {
	added, changed := compare(
		map[string]string{"the mount /a": "", "the setting /x": "1", "the setting /y": "2", "the file /gone": ""},
		map[string]string{"the mount /a": "", "the mount /b": "", "the setting /x": "1", "the setting /y": "3", "the setting /new": "1"})
	if !slices.Equal(added, []string{"the mount /b"}) || !slices.Equal(changed, []string{"the setting /y was 2, is 3"}) {
		t.Errorf("added %q, changed %q", added, changed)
	}
}

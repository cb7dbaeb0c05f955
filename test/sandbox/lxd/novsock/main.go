// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64

// Package main is novsock, which runs LXD where the kernel lacks vhost_vsock: from 5.0.3 on, LXD ends there.
//
// usage: novsock PROGRAM [ARGUMENT...]
//
// The program takes its place. In it, and in all that it starts, a bind to the host's vsock address becomes one to any
// address, /dev/vhost-vsock is /dev/null, and to give it a number succeeds. The kernel asks a process that stays beside
// them about each such call. What runs under novsock can't have its system calls intercepted by LXD, too.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// answering is the argument with which novsock is the process that stays.
	answering = "--answer"
	// pairFD is the file descriptor on which that process gets the one of the kernel's questions.
	pairFD = 3
	// setGuestCID is VHOST_VSOCK_SET_GUEST_CID.
	setGuestCID = 0x4008af60
)

func main() {
	runtime.LockOSThread() // The kernel asks about this thread, and about what takes its place.
	if len(os.Args) < 2 {
		fail(errors.New("usage: novsock PROGRAM [ARGUMENT...]"))
	}
	if os.Args[1] == answering {
		fail(answer(pairFD))
		return
	}
	fail(run(os.Args[1:]))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "novsock:", err)
		os.Exit(1)
	}
}

// run replaces this process by a program. It returns only when it fails.
func run(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	pair, err := startAnswering()
	if err != nil {
		return err
	}
	questions, err := filter()
	switch {
	case errors.Is(err, unix.EBUSY): // It runs under novsock already. The new process ends when pair is closed.
	case err != nil:
		return fmt.Errorf("filtering system calls: %w", err)
	default:
		if err := unix.Sendmsg(pair, []byte{0}, unix.UnixRights(questions), nil, 0); err != nil {
			return fmt.Errorf("handing over the questions: %w", err)
		}
	}
	return unix.Exec(path, command, os.Environ()) // It closes both.
}

// startAnswering starts the process that stays, and returns a socket that leads to it. It can't be started later: the
// filter would be its own, too.
func startAnswering() (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "pair")
	defer func() { _ = theirs.Close() }()
	process := exec.Command(self, answering) //nolint:noctx // it ends with those it answers
	process.Dir, process.Stderr, process.ExtraFiles = "/", os.Stderr, []*os.File{theirs}
	return pair[0], process.Start()
}

// filter makes the kernel ask about system calls of this thread, and returns the file descriptor of its questions.
func filter() (int, error) {
	const (
		// What can be read of a call, in bytes from the start: its number, its architecture, and its arguments.
		number, architecture, second, third = 0, 4, 16 + 1*8, 16 + 2*8

		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equals = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K
	)
	// Jt and Jf are how many instructions are skipped: where it is equal, and where not.
	program := []unix.SockFilter{
		{Code: load, K: architecture},
		{Code: equals, K: unix.AUDIT_ARCH_X86_64, Jf: 9}, // allow
		{Code: load, K: number},
		{Code: equals, K: unix.SYS_BIND, Jt: 8},   // ask
		{Code: equals, K: unix.SYS_IOCTL, Jt: 3},  // its request
		{Code: equals, K: unix.SYS_OPENAT, Jf: 5}, // allow
		{Code: load, K: third},
		{Code: equals, K: unix.O_RDWR | unix.O_CLOEXEC, Jt: 4, Jf: 3}, // ask, or allow
		{Code: load, K: second},
		{Code: equals, K: setGuestCID, Jf: 1},
		{Code: result, K: unix.SECCOMP_RET_ERRNO}, // of 0: it has succeeded
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
		{Code: result, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	described := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// A bind that was answered is not begun again because of a signal: it would fail.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	questions, _, err := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&described)))
	if err != 0 {
		return 0, err
	}
	return int(questions), nil
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// question is the kernel's struct seccomp_notif.
type question struct {
	id        uint64
	pid       uint32
	_         uint32
	number    int32
	_         uint32
	_         uint64
	arguments [6]uint64
}

// reply is struct seccomp_notif_resp.
type reply struct {
	id    uint64
	_     int64
	errno int32 // negative
	flags uint32
}

// replyFile is struct seccomp_notif_addfd.
type replyFile struct {
	id       uint64
	flags    uint32
	file     uint32
	_        uint32
	newFlags uint32
}

// answer answers the kernel's questions until nobody is left whom they are about.
func answer(pair int) error {
	questions, err := receive(pair)
	if err != nil || questions < 0 {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for {
		waiting := []unix.PollFd{{Fd: int32(questions), Events: unix.POLLIN}}
		if _, err := unix.Poll(waiting, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for questions: %w", err)
		}
		switch got := waiting[0].Revents; {
		case got&unix.POLLIN != 0:
			// Who asked may be gone at any time, with the question: that is no error.
			var q question
			if control(questions, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&q)) == nil {
				q.answer(questions, null)
			}
		case got != 0:
			return nil
		}
	}
}

// receive returns the file descriptor of the questions, or -1 if there will be none.
func receive(pair int) (int, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	_, size, _, _, err := unix.Recvmsg(pair, make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || size == 0 {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return -1, err
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	return files[0], unix.Close(pair)
}

func (q question) answer(questions, null int) {
	r := reply{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	switch q.number {
	case unix.SYS_BIND:
		if port, is := q.hostPort(); is {
			r.flags, r.errno = 0, -int32(q.bindAny(port))
		}
	case unix.SYS_OPENAT:
		const device = "/dev/vhost-vsock\x00"
		if string(q.memory(q.arguments[1], len(device))) == device {
			file := replyFile{
				id: q.id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, file: uint32(null), newFlags: unix.O_CLOEXEC,
			}
			_ = control(questions, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&file))
			return
		}
	}
	_ = control(questions, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

// memory reads memory of whoever asked, or as much as there is.
func (q question) memory(address uint64, size int) []byte {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", q.pid))
	if err != nil {
		return nil
	}
	defer func() { _ = memory.Close() }()
	content := make([]byte, size)
	n, _ := memory.ReadAt(content, int64(address))
	return content[:n]
}

// hostPort returns the port that is bound to, and whether it is of the host's vsock address.
func (q question) hostPort() (uint32, bool) {
	address := q.memory(q.arguments[1], unix.SizeofSockaddrVM)
	if len(address) < unix.SizeofSockaddrVM {
		return 0, false
	}
	little := binary.LittleEndian
	is := little.Uint16(address) == unix.AF_VSOCK && little.Uint32(address[8:]) == unix.VMADDR_CID_HOST
	return little.Uint32(address[4:]), is
}

// bindAny binds the socket of whoever asked to a port of any vsock address.
func (q question) bindAny(port uint32) unix.Errno {
	process, err := unix.PidfdOpen(q.process(), 0)
	if err == nil {
		defer func() { _ = unix.Close(process) }()
		var socket int
		if socket, err = unix.PidfdGetfd(process, int(q.arguments[0]), 0); err == nil {
			defer func() { _ = unix.Close(socket) }()
			err = unix.Bind(socket, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port})
		}
	}
	var errno unix.Errno
	errors.As(err, &errno)
	return errno
}

// process returns the id of the process whose thread asked, or 0.
func (q question) process() int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", q.pid))
	for line := range strings.Lines(string(status)) {
		if id, is := strings.CutPrefix(line, "Tgid:"); is {
			process, _ := strconv.Atoi(strings.TrimSpace(id))
			return process
		}
	}
	return 0
}

// control is ioctl.
func control(file int, request uint, argument unsafe.Pointer) error {
	if _, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(file), uintptr(request), uintptr(argument)); err != 0 {
		return err
	}
	return nil
}

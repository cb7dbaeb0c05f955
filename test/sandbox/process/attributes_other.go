// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import "syscall"

// attributes puts a program into a process group of its own. Only Linux can have it killed when we die.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

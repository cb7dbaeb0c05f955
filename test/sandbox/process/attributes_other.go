// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import "syscall"

// attributes puts a program into its own process group. Only Linux can kill it when we die.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// SPDX-License-Identifier: Apache-2.0

package process

import "syscall"

// attributes puts a program into its own process group, so that a Ctrl-C in the terminal reaches only us and programs
// are stopped in order, and makes the kernel kill it when we die.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

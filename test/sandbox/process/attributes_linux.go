// SPDX-License-Identifier: Apache-2.0

package process

import "syscall"

// attributes puts a program into a process group of its own, so that a Ctrl-C in the terminal
// reaches us alone and programs are stopped in order, and has the kernel kill it when we die.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// monitorTimeout bounds the conversation with a QEMU, which responds at once.
const monitorTimeout = time.Minute

// endHalfStarted ends what LXD leaves of the VMs that it was starting when it died: QEMUs that never ran, and the
// helpers that serve their config drives. LXD 5.0 can't start such a VM before ("device or resource busy"), so an
// operator does the same.
func (d *Daemon) endHalfStarted(ctx context.Context) error {
	processes, err := d.processesOfVMs()
	if err != nil {
		return err
	}
	for vm, pids := range processes {
		if d.runs(ctx, vm) {
			continue
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending process %d of VM %s: %w", pid, vm, err)
			}
		}
	}
	return nil
}

// processesOfVMs returns the ids of the processes of each VM: those that have its files in their arguments.
func (d *Daemon) processesOfVMs() (map[string][]int, error) {
	lists, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("finding the processes of VMs: %w", err)
	}
	processes := map[string][]int{}
	for _, list := range lists {
		arguments, _ := os.ReadFile(list) // It may have ended.
		for _, kind := range []string{"logs", "devices"} {
			_, path, _ := bytes.Cut(arguments, []byte(filepath.Join(d.Dir(), kind)+"/"))
			vm, _, found := strings.Cut(string(path), "/")
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(list)))
			if found && err == nil {
				processes[vm] = append(processes[vm], pid)
				break
			}
		}
	}
	return processes, nil
}

// runs reports whether a VM's QEMU runs the VM, which LXD orders last. QEMU responds to one client at a time.
func (d *Daemon) runs(ctx context.Context, vm string) bool {
	dir, err := os.Open(filepath.Join(d.Dir(), "logs", vm))
	if err != nil {
		return false
	}
	defer dir.Close()
	// The whole path may be too long for a socket.
	dialer := net.Dialer{Timeout: monitorTimeout}
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/qemu.monitor", dir.Fd()))
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(monitorTimeout)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte(`{"execute": "qmp_capabilities"} {"execute": "query-status"}`)); err != nil {
		return false
	}
	for responses := json.NewDecoder(conn); ; {
		var response struct {
			Return struct{ Running *bool }
		}
		if err := responses.Decode(&response); err != nil {
			return false
		}
		if response.Return.Running != nil {
			return *response.Return.Running
		}
	}
}

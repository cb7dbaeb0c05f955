// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// shims are programs that let virtual machines run where the kernel has no vsock and no KVM that boots them, and where
// LXD reads too little of what a program prints.
//
//go:embed shim
var shims embed.FS

// WriteShims writes programs to a directory that LXD finds before the machine's own. /dev/kvm must exist for LXD to
// offer virtual machines: it checks for the file, and offers none without it.
func WriteShims(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // QEMU's user reads it too
		return fmt.Errorf("writing the programs of the node: %w", err)
	}
	for _, name := range []string{"lxd-exec", "modprobe", "qemu-img"} {
		if err := writeShim(dir, name); err != nil {
			return err
		}
	}
	return writeFirmware(dir)
}

func writeShim(dir, name string) error {
	text, err := shims.ReadFile("shim/" + name)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), text, 0o755) // it is run
	}
	if err != nil {
		return fmt.Errorf("writing the programs of the node: %w", err)
	}
	return nil
}

// debianVirtiofsd is Debian 12's, where newer LXDs find it.
const debianVirtiofsd = "/usr/lib/qemu/virtiofsd"

// writeVirtiofsd writes a program that lets an LXD use Debian 12's, if that is there: an LXD does without.
func writeVirtiofsd(dir string) error {
	if _, err := os.Stat(debianVirtiofsd); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(os.MkdirAll(dir, 0o755), writeShim(dir, "virtiofsd"))
}

const (
	// firmwareArchitecture is what the firmware is written for.
	firmwareArchitecture = "amd64"
	// realFirmware is where Debian has firmware that boots.
	realFirmware = "/usr/share/OVMF"
	// firmwareSize is the least that QEMU takes.
	firmwareSize = 64 << 10
	// resetVector is where a processor begins, counted from the firmware's end.
	resetVector = 16
)

// writeFirmware writes firmware that halts virtual machines at once. What runs in them does not matter, and real firmware
// never stops to search for a system.
func writeFirmware(dir string) error {
	settings := bytes.Repeat([]byte{0xff}, firmwareSize)
	code := bytes.Clone(settings)
	copy(code[firmwareSize-resetVector:], []byte{0xfa, 0xf4, 0xeb, 0xfd}) // cli; hlt; jmp to the hlt
	for name, content := range map[string][]byte{
		"OVMF_CODE.fd": code, "OVMF_VARS.fd": settings, "OVMF_VARS.ms.fd": settings,
		"OVMF_CODE.4MB.fd": code, "OVMF_VARS.4MB.fd": settings, "OVMF_VARS.4MB.ms.fd": settings, // of LXD 5.21 and newer
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { // QEMU's user reads it too
			return fmt.Errorf("writing the firmware of virtual machines: %w", err)
		}
	}
	return nil
}

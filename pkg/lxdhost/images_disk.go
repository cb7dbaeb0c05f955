// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

var qcow2Magic = []byte("QFI\xfb")

// qcow2Header is the beginning of a disk in the format qcow2, as docs/interop/qcow2.rst of QEMU has it.
type qcow2Header struct {
	Magic           [4]byte
	Version         uint32
	BackingOffset   uint64
	BackingSize     uint32
	ClusterBits     uint32
	Size            uint64
	Encryption      uint32
	L1Size          uint32
	L1Offset        uint64
	RefcountOffset  uint64
	RefcountLength  uint32
	Snapshots       uint32
	SnapshotsOffset uint64
	Incompatible    uint64 // from version 3 on
}

const (
	// Bits of qcow2Header.Incompatible.
	qcow2Corrupt      = 1 << 1
	qcow2ExternalData = 1 << 2
	qcow2LongEntries  = 1 << 4

	// qcow2Offset are the bits of an entry of a table that say where in the file something begins.
	qcow2Offset = 0x00fffffffffffe00
	// qcow2Compressed is the bit of an entry whose offset has another form.
	qcow2Compressed = 1 << 62
	// maxL1 bounds the table of tables, as QEMU does.
	maxL1 = 32 << 20 / 8
)

// checkDisk returns the size of the disk for a VM, in bytes. What is wrong with it, LXD finds out when a VM is made, or
// never: it reads what was cut off as zeros, and a disk that is built on a file would be built on one of the host.
func checkDisk(file *io.SectionReader) (int64, error) {
	var h qcow2Header
	if err := binary.Read(io.NewSectionReader(file, 0, file.Size()), binary.BigEndian, &h); err != nil {
		return 0, cutOff(file, err)
	}
	if h.Version < 3 {
		h.Incompatible = 0
	}
	switch {
	case h.BackingOffset != 0:
		return 0, &FileError{"the disk is built on another file", bothRemedy}
	case h.Incompatible&qcow2ExternalData != 0:
		return 0, &FileError{"the disk's data are in another file", bothRemedy}
	case h.Encryption != 0:
		return 0, &FileError{"the disk is encrypted", "make one that is not with `qemu-img convert -O qcow2`"}
	case h.Incompatible&qcow2Corrupt != 0:
		return 0, &FileError{"the disk is damaged, as it says itself", againRemedy}
	case h.Size == 0 || h.Size > 1<<62 || h.ClusterBits < 9 || h.ClusterBits > 21 || h.L1Size > maxL1:
		return 0, &FileError{fmt.Sprintf("the disk is not a valid one of the format qcow2: it is of %d bytes, with clusters "+
			"of 2^%d", h.Size, h.ClusterBits), againRemedy}
	}
	return int64(h.Size), h.checkEnd(file)
}

// checkEnd reports whether the file ends before something that its tables name.
func (h *qcow2Header) checkEnd(file *io.SectionReader) error {
	tables, err := readTable(file, h.L1Offset, int64(h.L1Size))
	if err != nil {
		return err
	}
	entries, step := int64(1)<<h.ClusterBits/8, 1
	if h.Incompatible&qcow2LongEntries != 0 {
		step = 2 // Each is followed by a bitmap.
	}
	for _, table := range tables {
		if table&qcow2Offset == 0 {
			continue
		}
		clusters, err := readTable(file, table&qcow2Offset, entries)
		if err != nil {
			return err
		}
		for i := 0; i < len(clusters); i += step {
			offset := clusters[i] & qcow2Offset
			if clusters[i]&qcow2Compressed != 0 { // As many bits less as a cluster has sectors.
				offset = clusters[i] & (1<<(62-(h.ClusterBits-8)) - 1)
			}
			if offset >= uint64(file.Size()) {
				return cutOff(file, nil)
			}
		}
	}
	return nil
}

func readTable(file *io.SectionReader, offset uint64, entries int64) ([]uint64, error) {
	if offset > uint64(file.Size()) {
		return nil, cutOff(file, nil)
	}
	table := make([]uint64, entries)
	if err := binary.Read(io.NewSectionReader(file, int64(offset), 8*entries), binary.BigEndian, table); err != nil {
		return nil, cutOff(file, err)
	}
	return table, nil
}

// cutOff is the error of a file that is too short, unless it could not be read.
func cutOff(file *io.SectionReader, err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return &FileError{fmt.Sprintf("the disk is cut off: its file has only %d bytes", file.Size()), againRemedy}
}

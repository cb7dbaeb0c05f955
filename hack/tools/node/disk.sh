#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a disk that virtual machines boot: the operating system of real nodes (rootfs.sh) with Debian's kernel, behind
# systemd-boot. It goes to $BIN/node/disk.qcow2, and is made again when that system or this script changes. Nothing is
# mounted, and no loop device is needed.
#
# usage: hack/tools/node/disk.sh [check]     (check: only name what this computer lacks to make and to boot it)
set -euo pipefail

# program:package
needed=(mkfs.ext4:e2fsprogs mkfs.vfat:dosfstools mcopy:mtools sfdisk:fdisk qemu-img:qemu-utils genisoimage:genisoimage)

if [[ $(uname -m) != x86_64 ]]; then
  echo "  disk: none, a boot is tested on amd64 alone" >&2
  exit
fi

check() {
  local entry packages=()
  for entry in "${needed[@]}"; do
    PATH=$PATH:/usr/sbin command -v "${entry%%:*}" >/dev/null || packages+=("${entry#*:}")
  done
  [[ -e /usr/share/OVMF/OVMF_CODE.fd ]] || packages+=(ovmf)
  if ((${#packages[@]})); then
    echo "to boot a disk, programs are lacking: apt-get install --no-install-recommends ${packages[*]}" >&2
    exit 1
  fi
}

check
if [[ ${1:-} == check ]]; then exit; fi
BIN=${BIN:?the directory of tools}
rootfs=$BIN/node/rootfs.tar out=$BIN/node/disk.qcow2
stamp=$(cat "${BASH_SOURCE[0]}" "$BIN/.stamps/rootfs" | sha256sum | cut -d' ' -f1)
exec 9>"$BIN/.stamps/disk.lock"
flock 9
if [[ -e $out && $(cat "$BIN/.stamps/disk" 2>/dev/null) == "$stamp" ]]; then exit; fi

echo "  disk: installing a kernel" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
tar -C "$work/root" --numeric-owner -xf "$rootfs"

# What the kernel needs to find its root is in the initial RAM disk, and what it needs to read the disk with the user
# data: cloud-init decides where to search before udev has loaded any module.
mkdir -p "$work/root/etc/initramfs-tools/conf.d" "$work/root/debs"
printf 'MODULES=list\nCOMPRESS=gzip\n' >"$work/root/etc/initramfs-tools/conf.d/disk"
printf '%s\n' virtio_pci virtio_scsi sd_mod sr_mod ext4 isofs >"$work/root/etc/initramfs-tools/modules"
cp "$BIN"/node/kernel/*.deb "$work/root/debs"
if ! chroot "$work/root" sh -c 'DEBIAN_FRONTEND=noninteractive dpkg --install /debs/*.deb' >"$work/log" 2>&1; then
  cat "$work/log" >&2
  exit 1
fi
rm -r "$work/root/debs"
chroot "$work/root" systemctl --quiet enable systemd-networkd systemd-resolved
echo 'LABEL=root / ext4 defaults 0 1' >"$work/root/etc/fstab"
: >"$work/root/etc/machine-id"

# MiB of the disk, and of the file system that firmware reads. The rest is the root file system.
disk=1024 efi=64
raw=$work/disk
truncate --size=${disk}M "$raw"
printf 'label: gpt\nstart=1MiB, size=%dMiB, type=uefi\nstart=%dMiB, type=linux\n' $efi $((efi + 1)) |
  /usr/sbin/sfdisk --quiet "$raw"
offset=$(((efi + 1) << 20))
/usr/sbin/mkfs.ext4 -q -F -L root -d "$work/root" -E offset=$offset,lazy_itable_init=1 "$raw" $((disk - efi - 2))M

truncate --size=${efi}M "$work/efi"
/usr/sbin/mkfs.vfat "$work/efi" >/dev/null
printf 'timeout 0\n' >"$work/loader.conf"
printf '%s\n' 'title Debian' 'linux /vmlinuz' 'initrd /initrd.img' 'options root=LABEL=root rw console=ttyS0' \
  >"$work/debian.conf"
export MTOOLS_SKIP_CHECK=1
mmd -i "$work/efi" ::EFI ::EFI/BOOT ::loader ::loader/entries
mcopy -i "$work/efi" "$work/root/usr/lib/systemd/boot/efi/systemd-bootx64.efi" ::EFI/BOOT/BOOTX64.EFI
mcopy -i "$work/efi" "$work/loader.conf" ::loader
mcopy -i "$work/efi" "$work/debian.conf" ::loader/entries
mcopy -i "$work/efi" "$work"/root/boot/vmlinuz-* ::vmlinuz
mcopy -i "$work/efi" "$work"/root/boot/initrd.img-* ::initrd.img
dd if="$work/efi" of="$raw" bs=1M seek=1 conv=notrunc,sparse status=none

qemu-img convert -f raw -O qcow2 -c "$raw" "$out.new"
mv "$out.new" "$out"
echo "$stamp" >"$BIN/.stamps/disk"

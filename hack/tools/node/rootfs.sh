#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the operating system of real nodes: Debian with systemd, cloud-init, netplan and what kubelet needs, without
# Kubernetes. It goes to $BIN/node/rootfs.tar, the packages that make a node an LXD host to $BIN/node/lxd, and those with
# which a virtual machine boots it to $BIN/node/kernel. All are made again only when this script changes.
#
# usage: hack/tools/node/rootfs.sh [check]     (check: only name what this computer lacks to make and to run them)
set -euo pipefail

# program:package
needed=(mmdebstrap:mmdebstrap lxd:lxd mkfs.btrfs:btrfs-progs dnsmasq:dnsmasq-base nft:nftables ip:iproute2)
case $(uname -m) in
aarch64) needed+=(qemu-system-aarch64:qemu-system-arm) ;;
*) needed+=(qemu-system-x86_64:qemu-system-x86) ;;
esac

check() {
  local entry packages=()
  if ((EUID != 0)); then
    echo "real nodes take root: run it again as root" >&2
    exit 1
  fi
  for entry in "${needed[@]}"; do
    command -v "${entry%%:*}" >/dev/null || packages+=("${entry#*:}")
  done
  if ((${#packages[@]})); then
    echo "real nodes lack programs: apt-get install --no-install-recommends ${packages[*]}" >&2
    exit 1
  fi
}

check
if [[ ${1:-} == check ]]; then exit; fi
BIN=${BIN:?the directory of tools}
stamp=$(sha256sum "${BASH_SOURCE[0]}" | cut -d' ' -f1)
out=$BIN/node/rootfs.tar
mkdir -p "$BIN/node" "$BIN/.stamps"
exec 9>"$BIN/.stamps/rootfs.lock"
flock 9
if [[ -e $out && $(cat "$BIN/.stamps/rootfs" 2>/dev/null) == "$stamp" ]]; then exit; fi

packages=(
  systemd-sysv udev dbus systemd-resolved cloud-init netplan.io python3 ca-certificates login passwd sudo
  iproute2 iputils-ping iptables nftables conntrack ebtables ethtool socat kmod
  procps mount util-linux runc openssl curl jq
)
# The snap of LXD has all of these.
lxd=(lxd btrfs-progs dnsmasq-base "${needed[-1]#*:}")
kernel=("linux-image-cloud-$(dpkg --print-architecture)" systemd-boot-efi)

# download,DIRECTORY,PACKAGES: a hook that fetches packages, with all that they need, to a directory of $BIN/node.
download() {
  local archives=/var/cache/apt/archives to=$BIN/node/$1
  shift
  rm -rf "$to.new"
  mkdir "$to.new"
  echo "rm -f \"\$1\"$archives/*.deb"
  echo "APT_CONFIG=\"\$MMDEBSTRAP_APT_CONFIG\" apt-get install --yes --quiet=2 --download-only --no-install-recommends $*"
  echo "mv \"\$1\"$archives/*.deb '$to.new'"
}

echo "  rootfs: installing Debian" >&2
mmdebstrap --quiet --mode=root --variant=minbase --skip=check/empty --aptopt='APT::Install-Recommends "false"' \
  --include="$(IFS=,; echo "${packages[*]}")" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="set -e; $(download lxd "${lxd[@]}")" \
  --customize-hook="set -e; $(download kernel "${kernel[@]}")" \
  bookworm "$out.new.tar" 9>&-
for directory in lxd kernel; do
  rm -rf "$BIN/node/$directory"
  mv "$BIN/node/$directory.new" "$BIN/node/$directory"
done
mv "$out.new.tar" "$out"
echo "$stamp" >"$BIN/.stamps/rootfs"

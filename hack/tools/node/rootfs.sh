#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the operating system of real nodes: Debian with systemd, cloud-init, netplan and what kubelet needs, without
# Kubernetes. It goes to $BIN/node/rootfs.tar, and the packages that make a node an LXD host to $BIN/node/lxd. Both are
# made again only when this script changes.
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
archives=/var/cache/apt/archives
echo "  rootfs: installing Debian" >&2
rm -rf "$BIN/node/lxd.new"
mkdir "$BIN/node/lxd.new"
mmdebstrap --quiet --mode=root --variant=minbase --skip=check/empty --aptopt='APT::Install-Recommends "false"' \
  --include="$(IFS=,; echo "${packages[*]}")" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="rm \"\$1\"$archives/*.deb" \
  --customize-hook="APT_CONFIG=\"\$MMDEBSTRAP_APT_CONFIG\" apt-get install --yes --quiet=2 --download-only --no-install-recommends ${lxd[*]}" \
  --customize-hook="cp \"\$1\"$archives/*.deb '$BIN/node/lxd.new'; rm \"\$1\"$archives/*.deb" \
  bookworm "$out.new.tar" 9>&-
rm -rf "$BIN/node/lxd"
mv "$BIN/node/lxd.new" "$BIN/node/lxd"
mv "$out.new.tar" "$out"
echo "$stamp" >"$BIN/.stamps/rootfs"

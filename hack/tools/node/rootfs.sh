#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the operating system of real nodes: Debian with systemd, cloud-init and what kubelet needs, without Kubernetes.
# It goes to $BIN/node/rootfs.tar, and is made again only when this script changes.
set -euo pipefail
BIN=${BIN:?the directory of tools}
stamp=$(sha256sum "${BASH_SOURCE[0]}" | cut -d' ' -f1)
out=$BIN/node/rootfs.tar
mkdir -p "$BIN/node" "$BIN/.stamps"
exec 9>"$BIN/.stamps/rootfs.lock"
flock 9
if [[ -e $out && $(cat "$BIN/.stamps/rootfs" 2>/dev/null) == "$stamp" ]]; then exit; fi
command -v mmdebstrap >/dev/null || { echo "rootfs.sh: mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }

packages=(
  systemd-sysv dbus systemd-resolved cloud-init python3 ca-certificates login passwd sudo
  iproute2 iputils-ping iptables nftables conntrack ebtables ethtool socat kmod
  procps mount util-linux runc openssl curl jq
)
echo "  rootfs: installing Debian" >&2
mmdebstrap --quiet --mode=root --variant=minbase --skip=check/empty --aptopt='APT::Install-Recommends "false"' \
  --include="$(IFS=,; echo "${packages[*]}")" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  bookworm "$out.new.tar" 9>&-
mv "$out.new.tar" "$out"
echo "$stamp" >"$BIN/.stamps/rootfs"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes another LXD than the machine's for tests: that of Debian 13, on Debian 12 or 13. Its packages come from where apt
# has the machine's own, and are unpacked beside them: $BIN/lxd-second/lxd runs it with all else of the machine. It is made
# again only when this script or novsock changes.
#
# usage: BIN=DIRECTORY hack/tools/lxd-second.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

suite=trixie
# With libraries that this LXD needs newer ones of; all others are the machine's.
packages=(lxd libc6 libdqlite0 liblxc1t64 liblxc-common libsqlite3-0 libuv1t64 libcap2 libseccomp2)
novsock=test/sandbox/lxd/novsock
# What may take how many seconds.
limit=300
marker=usr/lib/capmaas-lxd-second

fail() {
  echo "there is no second LXD: $*" >&2
  exit 1
}

BIN=${BIN:?the directory of tools}
if ((EUID != 0)); then fail "it takes root"; fi
# shellcheck disable=SC1091 # not this repository's
system=$(. /etc/os-release 2>/dev/null && echo "$ID ${VERSION_CODENAME:-}") || system=
if [[ $system != debian\ * ]]; then fail "its packages are for Debian, this is ${system:-another system}"; fi
codename=${system#debian }
architecture=$(dpkg --print-architecture)
if [[ $architecture != amd64 ]]; then fail "it is for amd64, this is $architecture"; fi

mkdir -p "$BIN/.stamps"
exec 9>"$BIN/.stamps/lxd-second.lock"
flock 9
out=$BIN/lxd-second
stamp=$(cat "${BASH_SOURCE[0]}" "$novsock"/*.go | sha256sum | cut -d' ' -f1)
if [[ $(cat "$out/stamp" 2>/dev/null) == "$stamp" ]]; then exit; fi

new=$out.new
rm -rf "$new"
mkdir -p "$new/apt/state/lists/partial" "$new/apt/cache/archives/partial" "$new/debs" "$new/root/usr/lib"

# target OPTION prints Debian's name in the machine's sources, and the file that has it there.
target() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(RELEASE)|$(CODENAME)|$(COMPONENT)|$(SOURCESENTRY)' 'Created-By: Packages' "$1" |
    awk -F'|' -v codename="$codename" '!n && ($1 == codename || $2 == codename) && $3 == "main" {n++; print $1, $4}'
}

# source_of FILE RELEASE prints the entry of a release, as one of the suite. All else stays: address, keyring, options.
source_of() {
  case $1 in
  *.sources)
    awk -v release="$2" -v suite="$suite" 'BEGIN {RS = ""; FS = "\n"} {
      kept = ""; skip = 0; has = ""; off = 0
      for (i = 1; i <= NF; i++) {
        if ($i ~ /^#/) continue
        if ($i ~ /^[^ \t]/) {
          name = tolower(substr($i, 1, index($i, ":") - 1))
          skip = name ~ /^(types|suites|components|architectures|languages|targets|enabled)$/
        }
        value = " " substr($i, index($i, ":") + 1) " "
        gsub(/[ \t]+/, " ", value)
        if (name == "types" && index(value, " deb ")) has = has "t"
        if (name == "suites" && index(value, " " release " ")) has = has "s"
        if (name == "components" && index(value, " main ")) has = has "c"
        if (name == "enabled" && tolower(value) ~ / (no|false|without|off|disable) /) off = 1
        if (!skip) kept = kept $i "\n"
      }
      if (length(has) == 3 && !off) {
        printf "%sTypes: deb\nSuites: %s\nComponents: main\nArchitectures: amd64\nTargets: Packages\n", kept, suite
        exit
      }
    }' "$1"
    ;;
  *)
    awk -v release="$2" -v suite="$suite" '$1 == "deb" {
      options = ""
      if (match($0, /\[[^]]*\]/)) {
        options = substr($0, RSTART + 1, RLENGTH - 2)
        gsub(/(^| )(arch|lang|target)[-+]?=[^ ]*/, "", options)
        $0 = substr($0, 1, RSTART - 1) " " substr($0, RSTART + RLENGTH)
      }
      if ($3 == release && $0 " " ~ / main /) {
        print "deb [" options " arch=amd64 target=Packages ] " $2 " " suite " main"
        exit
      }
    }' "$1"
    ;;
  esac
}

# Before the first `apt-get update` apt does not know what is whose.
read -r release entry < <(target 'Origin: Debian'; target --no-release-info) || fail "apt has no source of Debian $codename main"
sources=$new/apt/second.${entry##*.}
sources=${sources%%:*}
source_of "${entry%:*}" "$release" >"$sources"
if [[ ! -s $sources ]]; then fail "no entry for $release was found in ${entry%:*}"; fi
: >"$new/apt/status"

# apt-get as the machine has it, but with sources and a state of its own.
apt() {
  timeout --kill-after=10 "$limit" apt-get --quiet=2 \
    -o Dir::State="$new/apt/state" -o Dir::State::status="$new/apt/status" -o Dir::Cache="$new/apt/cache" \
    -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null -o APT::Default-Release= \
    -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Acquire::Languages=none -o Acquire::Retries=3 "$@" 9>&-
}

echo "  lxd-second: fetching the LXD of Debian $suite" >&2
apt update >&2 || fail "apt can't read Debian $suite (see above)"
(cd "$new/debs" && apt download "${packages[@]}" >&2) || fail "apt can't download ${packages[*]} of Debian $suite (see above)"
for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$new/root/$directory"; done
for package in "$new"/debs/*.deb; do dpkg-deb --extract "$package" "$new/root"; done
: >"$new/root/$marker"

CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$new/novsock" "./$novsock" 9>&-
cat >"$new/lxd" <<WRAPPER
#!/bin/sh
# Runs the LXD that is unpacked beside this file, in a mount namespace where /usr has its packages, too.
set -eu
here=\$(dirname "\$(readlink -f "\$0")")
if [ -e /$marker ]; then
	exec "\$here/novsock" /usr/bin/lxd "\$@"
fi
exec unshare --mount --propagation slave sh -euc '
	(cd "\$0/root" && mount -t overlay overlay -o lowerdir=usr:/usr /usr)
	exec "\$0/lxd" "\$@"' "\$here" "\$@"
WRAPPER
chmod +x "$new/lxd"
version=$(timeout --kill-after=10 60 "$new/lxd" --version 9>&-) || fail "it does not run here (see above)"
rm -rf "$new/apt" "$new/debs"
echo "$stamp" >"$new/stamp"
rm -rf "$out"
mv "$new" "$out"
echo "  lxd-second: LXD $version of Debian $suite" >&2

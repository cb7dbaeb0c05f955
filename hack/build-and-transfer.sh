#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds capmaasctl for a machine that is reached by SSH, and copies it there.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: hack/build-and-transfer.sh --host HOST [--key FILE] [--user USER]

Builds capmaasctl, static, for the architecture of HOST, copies it into the
user's home directory there, and makes links beside it, under which it is one
of its checks: lxd-test-linux, vmhost-test-linux, maas-test-linux.

  --host HOST   name or address of the machine, or a Host of ~/.ssh/config
  --key FILE    private key to log in with (default: what ssh takes)
  --user USER   user to log in as (default: what ssh takes)
  --help        this text

It needs go, ssh and scp here, and nothing but a shell on HOST.
USAGE
}

# fail CODE TEXT: 2 is wrong usage, 1 anything else.
fail() {
  echo "build-and-transfer.sh: $2" >&2
  exit "$1"
}

host='' key='' user='' wrong=()
while (($# > 0)); do
  name=${1%%=*}
  case $1 in
  --help | -h)
    usage
    exit 0
    ;;
  --host=* | --key=* | --user=*) value=${1#*=} ;;
  --host | --key | --user)
    if (($# < 2)); then
      wrong+=("$name: its value is missing")
      break
    fi
    value=$2
    shift
    ;;
  *)
    wrong+=("there is no option $1")
    shift
    continue
    ;;
  esac
  shift
  case $name in
  --host) host=$value ;;
  --key) key=$value ;;
  --user) user=$value ;;
  esac
done

if [[ -z $host ]]; then
  wrong+=("--host is missing")
elif [[ $host == -* || $host == *[[:space:]@/]* ]]; then
  wrong+=("--host: '$host' is no name or address of a machine; the user goes into --user")
fi
if [[ $user == -* || $user == *[[:space:]@:/]* ]]; then
  wrong+=("--user: '$user' is no name of a user")
fi
if [[ -n $key && ! -r $key ]]; then
  wrong+=("--key: there is no file '$key' that can be read")
fi
for tool in go ssh scp; do
  if ! command -v "$tool" >/dev/null; then
    wrong+=("$tool is not installed here")
  fi
done
if ((${#wrong[@]} > 0)); then
  for problem in "${wrong[@]}"; do
    echo "build-and-transfer.sh: $problem" >&2
  done
  echo "Try hack/build-and-transfer.sh --help" >&2
  exit 2
fi

options=(-o ConnectTimeout=15)
if [[ -n $key ]]; then
  options+=(-i "$key" -o IdentitiesOnly=yes)
fi
login=${user:+$user@}$host
# scp takes what is before a colon for the machine, unless it is in brackets.
if [[ $host == *:* && $host != \[* ]]; then
  target="${user:+$user@}[$host]"
else
  target=$login
fi

# on_host COMMAND: runs it there, in the home directory. It leaves our input alone, which may be a loop's.
on_host() {
  ssh -n "${options[@]}" -- "$login" "$1"
}

machine=$(on_host 'uname -sm') || fail 1 "can't log in at $login by ssh"
case $machine in
'Linux x86_64') arch=amd64 ;;
'Linux aarch64' | 'Linux arm64') arch=arm64 ;;
'Linux ppc64le') arch=ppc64le ;;
'Linux s390x') arch=s390x ;;
*) fail 1 "$login is '$machine'; capmaasctl is built for Linux on x86_64, aarch64, ppc64le and s390x" ;;
esac

root=$(dirname -- "${BASH_SOURCE[0]}")/..
built=$(mktemp -d)
trap 'rm -rf -- "$built"' EXIT
version=$(git -C "$root" describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.1.0-dev)
echo "Building capmaasctl $version for linux/$arch"
CGO_ENABLED=0 GOOS=linux GOARCH=$arch go -C "$root" build -trimpath -buildvcs=false \
  -ldflags="-s -w -X main.version=$version" -o "$built/capmaasctl" ./cmd/capmaasctl || fail 1 "go build failed"

echo "Copying it to $login"
# Beside the one that is there, and then over it: that one may be running.
scp -q "${options[@]}" -- "$built/capmaasctl" "$target:capmaasctl.new" || fail 1 "can't copy to $login by scp"
on_host 'chmod 0755 capmaasctl.new && mv -f capmaasctl.new capmaasctl &&
  for name in lxd-test vmhost-test maas-test; do ln -sf capmaasctl "$name-linux" || exit; done' ||
  fail 1 "can't put capmaasctl into the home directory of $login"
echo "Done. On $login: sudo ./capmaasctl check lxd, or sudo ./lxd-test-linux --help"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the images of the manager and the initializer, or pushes them, with docker or buildah, whichever works here.
# `make docker-build` and `make docker-push` call it.
#
# usage: hack/images.sh build|push
#
# IMG, INITIALIZER_IMG  what the images are called
# ARCHS                 Go's names of the processors they are for. For more than one, each image is a list, of the images NAME-ARCH:
#                       buildah makes the list at once, docker when it is pushed.
# CONTEXT               a directory of this script's own, for what goes into the images
# VERSION, LDFLAGS      the release, and the linker's flags that tell it to the programs
# CA_CERTIFICATES       a file with the CA roots; default: Mozilla's, of the version that hack/tools/roots pins
# TOOL                  docker or buildah, where it matters
# TLS_VERIFY            false for a registry without TLS: when buildah pushes lists, it does not read registries.conf
# REVISION              the commit; default: that of the checkout
# SOURCE_DATE_EPOCH     when the images were made, in seconds of Unix time; default: when the checkout's commit was made
#
# Of the same commit, the same roots, Go and builder come the same digests, wherever and whenever.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

read -ra archs <<<"$ARCHS"
programs=(manager lxd-initializer)

fail() {
  echo "images.sh: $*" >&2
  exit 1
}

# find_tool prints docker, or buildah, whichever works here.
find_tool() {
  if [[ -n ${TOOL:-} ]]; then
    echo "$TOOL"
  elif docker info >/dev/null 2>&1; then
    echo docker
  elif command -v buildah >/dev/null; then
    echo buildah
  else
    fail "images are built and pushed with a running docker or with buildah, and neither is here"
  fi
}

# name_of PROGRAM prints what its image is called.
name_of() {
  if [[ $1 == manager ]]; then echo "$IMG"; else echo "$INITIALIZER_IMG"; fi
}

# name_of_one PROGRAM ARCH prints what its image for one processor is called.
name_of_one() {
  if ((${#archs[@]} == 1)); then name_of "$1"; else echo "$(name_of "$1")-$2"; fi
}

# lay_out PROGRAM ARCH writes the files of an image; neither the umask nor the time shows in them.
lay_out() {
  local dir=$CONTEXT/$2/$1
  rm -rf "$dir"
  install -d -m 0755 "$dir" "$dir"/etc{,/ssl,/ssl/certs}
  install -m 0644 "$CA_CERTIFICATES" "$dir/etc/ssl/certs/ca-certificates.crt"
  CGO_ENABLED=0 GOOS=linux GOARCH=$2 go build -trimpath -buildvcs=false -ldflags="$LDFLAGS" -o "$dir/$1" "./cmd/$1"
  chmod 0755 "$dir/$1"
  find "$dir" -depth -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# build_one PROGRAM ARCH
build_one() {
  local options=(
    --file Dockerfile --target "$1" --platform "linux/$2" --tag "$(name_of_one "$1" "$2")"
    --label "org.opencontainers.image.version=$VERSION" --label "org.opencontainers.image.created=$created"
    --label "org.opencontainers.image.revision=$REVISION"
  )
  if [[ $tool == buildah ]]; then
    # The label would tell buildah's version.
    options+=(--timestamp "$SOURCE_DATE_EPOCH" --identity-label=false)
  else
    # BuildKit's own, and no record of the build beside the image: it would tell the time.
    options+=(--build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH")
    export BUILDX_NO_DEFAULT_ATTESTATIONS=1
  fi
  "$tool" build "${options[@]}" "$CONTEXT/$2"
}

# list_them PROGRAM has buildah make the list of a program's images.
list_them() {
  local name arch
  name=$(name_of "$1")
  if buildah manifest exists "$name"; then
    buildah manifest rm "$name"
  elif buildah inspect --type image "$name" >/dev/null 2>&1; then
    buildah rmi "$name"
  fi
  buildah manifest create "$name"
  for arch in "${archs[@]}"; do buildah manifest add "$name" "$(name_of_one "$1" "$arch")"; done
}

build() {
  local program arch
  mkdir -p "$CONTEXT"
  if [[ -z ${CA_CERTIFICATES:-} ]]; then
    CA_CERTIFICATES=$CONTEXT/roots.pem
    GOWORK=off go run -C hack/tools/roots . >"$CA_CERTIFICATES"
  fi
  [[ -r $CA_CERTIFICATES ]] || fail "there are no CA roots at $CA_CERTIFICATES"
  for program in "${programs[@]}"; do
    for arch in "${archs[@]}"; do
      lay_out "$program" "$arch"
      build_one "$program" "$arch"
    done
    if [[ $tool == buildah ]] && ((${#archs[@]} > 1)); then list_them "$program"; fi
  done
}

push() {
  local program name arch
  [[ $IMG == */* && $INITIALIZER_IMG == */* ]] || fail "say where to push: REGISTRY=..., or IMG=... and INITIALIZER_IMG=..."
  for program in "${programs[@]}"; do
    name=$(name_of "$program")
    if ((${#archs[@]} == 1)); then
      "$tool" push "$name"
    elif [[ $tool == buildah ]]; then
      buildah manifest push --all --tls-verify="${TLS_VERIFY:-true}" "$name" "docker://$name"
    else
      for arch in "${archs[@]}"; do docker push "$(name_of_one "$program" "$arch")"; done
      docker manifest rm "$name" 2>/dev/null || true # of an earlier push
      docker manifest create "$name" "${archs[@]/#/$name-}"
      docker manifest push --purge "$name"
    fi
  done
}

((${#archs[@]})) || fail "ARCHS is empty"
tool=$(find_tool)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
REVISION=${REVISION:-$(git rev-parse HEAD 2>/dev/null || true)}
case ${1-} in
  build | push) "$1" ;;
  *) fail "usage: hack/images.sh build|push" ;;
esac

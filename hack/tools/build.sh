#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Gets the pinned tools and control-plane binaries, in the versions of
# hack/tools/go.mod and hack/tools/lint/go.mod, the controllers of bootstrap
# providers in those of hack/tools/providers, what runs on real nodes in those
# of hack/tools/node, and what makes and tries releases in those of
# hack/tools/release, hack/tools/cosign and hack/tools/operator.
# An official release is downloaded if hack/tools/releases has its checksum.
# What can't be downloaded, and what has none, is built with `go build`.
#
# usage: hack/tools/build.sh [TOOL...]     (none: all of them but the providers, the nodes' programs and the releases')
#        hack/tools/build.sh versions      (print the tools with their versions)
#
# BIN                 where they go (default: bin/ of the repository);
#                     the control plane goes to $BIN/k8s, as envtest wants one directory of its own,
#                     and what runs on real nodes to $BIN/node, the previous Kubernetes to $BIN/node/previous.
# KUBEBUILDER_ASSETS  where set, control-plane binaries that exist there are linked instead.
# TOOLS_MIRROR        base address of a server that has https://HOST/PATH as HOST/PATH; none: build all from source.
# RELEASES            the file with the checksums (default: hack/tools/releases).
#
# A tool is made again only when what it is made of changed: its line of
# hack/tools/releases, or a hash of its go.mod, go.sum, package, flags and the
# Go version, is kept in $BIN/.stamps. It speaks of content, not of times, so a
# bin/ restored from a cache is as good as new.
set -euo pipefail
shopt -s inherit_errexit

# The tools run here, whatever else is being built for.
unset GOOS GOARCH

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BIN=${BIN:-$(cd "$here/../.." && pwd)/bin}
assets=${KUBEBUILDER_ASSETS:-}
RELEASES=${RELEASES:-$here/releases}
TOOLS_MIRROR=${TOOLS_MIRROR:-}

control_plane="etcd kube-apiserver kubectl kube-controller-manager"
tools="$control_plane clusterctl controller-gen helm kustomize golangci-lint"
# Each costs minutes, and only the tests of bootstrap providers use them.
providers="rke2-bootstrap rke2-control-plane k3s-bootstrap k3s-control-plane dev"
# A machine's operating system and its programs: some ten minutes on two cores, and only real nodes need them.
node="kubelet kubeadm kube-scheduler kube-proxy containerd containerd-shim-runc-v2 ctr cni-bridge cni-host-local cni-loopback cni-portmap coredns kube-vip"
# The minor version of Kubernetes before, which nodes are upgraded from: some five minutes more.
previous="previous-kubelet previous-kubeadm previous-kube-apiserver previous-kube-controller-manager previous-kube-scheduler previous-kube-proxy"
# What makes and tries releases. cosign alone costs minutes.
release="actionlint capi-operator cosign cyclonedx-gomod krew"

# Reproducible, and what the tool's own release builds use.
build_date=2026-01-01T00:00:00Z

platform=$(go env GOHOSTOS)/$(go env GOHOSTARCH)

# package_of TOOL prints the main package it is built from.
package_of() {
  case $1 in
  etcd) echo go.etcd.io/etcd/server/v3 ;;
  previous-*) echo "k8s.io/kubernetes/cmd/${1#previous-}" ;;
  kube-apiserver | kubectl | kube-controller-manager | kubelet | kubeadm | kube-scheduler | kube-proxy) echo "k8s.io/kubernetes/cmd/$1" ;;
  clusterctl) echo sigs.k8s.io/cluster-api/cmd/clusterctl ;;
  controller-gen) echo sigs.k8s.io/controller-tools/cmd/controller-gen ;;
  helm) echo helm.sh/helm/v3/cmd/helm ;;
  kustomize) echo sigs.k8s.io/kustomize/kustomize/v5 ;;
  golangci-lint) echo github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
  rke2-bootstrap) echo github.com/rancher/cluster-api-provider-rke2/bootstrap ;;
  rke2-control-plane) echo github.com/rancher/cluster-api-provider-rke2/controlplane ;;
  k3s-bootstrap) echo github.com/k3s-io/cluster-api-k3s/bootstrap ;;
  k3s-control-plane) echo github.com/k3s-io/cluster-api-k3s/controlplane ;;
  dev) echo sigs.k8s.io/cluster-api/test/infrastructure/docker ;;
  containerd | containerd-shim-runc-v2 | ctr) echo "github.com/containerd/containerd/v2/cmd/$1" ;;
  cni-host-local) echo github.com/containernetworking/plugins/plugins/ipam/host-local ;;
  cni-bridge | cni-loopback) echo "github.com/containernetworking/plugins/plugins/main/${1#cni-}" ;;
  cni-portmap) echo github.com/containernetworking/plugins/plugins/meta/portmap ;;
  coredns) echo github.com/coredns/coredns ;;
  kube-vip) echo github.com/kube-vip/kube-vip ;;
  capi-operator) echo sigs.k8s.io/cluster-api-operator/cmd ;;
  actionlint) echo github.com/rhysd/actionlint/cmd/actionlint ;;
  cosign) echo github.com/sigstore/cosign/v3/cmd/cosign ;;
  cyclonedx-gomod) echo github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod ;;
  krew) echo sigs.k8s.io/krew/cmd/krew ;;
  *)
    echo "build.sh: unknown tool \"$1\"; there are: $tools $providers $node $previous $release" >&2
    return 1
    ;;
  esac
}

# module_dir TOOL prints the directory of the module that pins it.
module_dir() {
  case $1 in
  golangci-lint) echo "$here/lint" ;;
  rke2-*) echo "$here/providers/rke2" ;;
  k3s-*) echo "$here/providers/k3s" ;;
  dev) echo "$here/providers/dev" ;;
  containerd* | ctr | cni-*) echo "$here/node/runtime" ;;
  coredns | kube-vip) echo "$here/node/addons" ;;
  previous-*) echo "$here/node/previous" ;;
  actionlint | cyclonedx-gomod | krew) echo "$here/release" ;;
  cosign) echo "$here/cosign" ;;
  capi-operator) echo "$here/operator" ;;
  *) echo "$here" ;;
  esac
}

# path_of TOOL prints where its binary goes.
path_of() {
  if [[ $1 == previous-* ]]; then
    echo "$BIN/node/previous/${1#previous-}"
    return
  fi
  case " $control_plane / $node " in
  *" $1 "*/*) echo "$BIN/k8s/$1" ;;
  *" $1 "*) echo "$BIN/node/$1" ;;
  *) echo "$BIN/$1" ;;
  esac
}

# version_of TOOL prints the version of the module that has its package.
version_of() {
  awk -v package="$(package_of "$1")/" 'index(package, $1 "/") == 1 && $2 ~ /^v[0-9]/ {print $2; exit}' "$(module_dir "$1")/go.mod"
}

# pin_of TOOL prints the line that pins its official release for this computer.
pin_of() { grep "^$1 $(version_of "$1") $platform " "$RELEASES"; }

# kubernetes_version_flags PACKAGE MODULE prints -X flags in the form of Kubernetes' version packages.
# Without them kube-apiserver reports v0.0.0-master and Cluster API refuses to work with it.
kubernetes_version_flags() {
  local package=$1 version=$2 major minor
  IFS=. read -r major minor _ <<<"${version#v}"
  printf ' -X %s.%s' "$package" "gitVersion=$version" "$package" "gitMajor=$major" "$package" "gitMinor=$minor" \
    "$package" gitTreeState=clean "$package" gitCommit=unknown "$package" "buildDate=$build_date"
}

# ldflags_of TOOL prints the linker flags that tell it its own version.
ldflags_of() {
  local version minor package
  version=$(version_of "$1")
  printf -- '-s -w'
  case $1 in
  kube-apiserver | kubectl | kube-controller-manager | kubelet | kubeadm | kube-scheduler | kube-proxy | previous-*)
    kubernetes_version_flags k8s.io/component-base/version "$version"
    kubernetes_version_flags k8s.io/client-go/pkg/version "$version"
    ;;
  clusterctl) kubernetes_version_flags sigs.k8s.io/cluster-api/version "$version" ;;
  helm)
    printf ' -X helm.sh/helm/v3/internal/version.version=%s' "$version"
    # As Helm's own Makefile: what Kubernetes `helm template` and `helm lint` take for the cluster's.
    version=$(cd "$here" && go list -m -f '{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' k8s.io/client-go)
    IFS=. read -r _ minor _ <<<"$version"
    for package in lint/rules chartutil; do
      printf ' -X helm.sh/helm/v3/pkg/%s.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/%s.k8sVersionMinor=%s' "$package" "$package" "$minor"
    done
    ;;
  containerd*) printf ' -X github.com/containerd/containerd/v2/version.Version=%s' "$version" ;;
  golangci-lint) printf ' -X main.version=%s -X main.commit=unknown -X main.date=%s' "${version#v}" "$build_date" ;;
  esac
}

# stamp_of TOOL FLAGS prints what its binary depends on, as a hash.
stamp_of() {
  local dir
  dir=$(module_dir "$1")
  cat "$dir/go.mod" "$dir/go.sum" <(package_of "$1") <(echo "$2") <(go version) | sha256sum | cut -d' ' -f1
}

# watch_build PID TOOL PLACE shows that a build is alive: seconds in a terminal, else a line per half minute.
watch_build() {
  local pid=$1 tool=$2 place=$3 began=$SECONDS elapsed said=0
  while kill -0 "$pid" 2>/dev/null; do
    elapsed=$((SECONDS - began))
    if [[ -t 2 ]]; then
      printf '\r  %-24s building %4ds  (%s)' "$tool" "$elapsed" "$place" >&2
    elif ((elapsed >= said + 30)); then
      said=$elapsed
      printf '  %-24s still building after %ds  (%s)\n' "$tool" "$elapsed" "$place" >&2
    fi
    sleep 1
  done
  if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
}

# link_asset TOOL links the binary from KUBEBUILDER_ASSETS, if that has it.
link_asset() {
  local tool=$1 path
  path=$(path_of "$tool")
  [[ $path == "$BIN/k8s/"* && -n $assets && -x $assets/$tool ]] || return 1
  # Called from a make that linked them before: KUBEBUILDER_ASSETS is $BIN/k8s itself.
  if [[ $assets -ef $BIN/k8s ]]; then
    [[ -L $path ]]
    return
  fi
  rm -f "$path" "$BIN/.stamps/$tool"
  ln -s "$(cd "$assets" && pwd)/$tool" "$path"
}

# is_there TOOL reports whether its binary is there and made of the same things, or is linked.
is_there() {
  local path stamp
  path=$(path_of "$1")
  if link_asset "$1"; then return; fi
  [[ -x $path && ! -L $path ]] || return 1
  stamp=$(cat "$BIN/.stamps/$1" 2>/dev/null) || return 1
  [[ $stamp == "$(pin_of "$1" || true)" || $stamp == "$(stamp_of "$1" "$(ldflags_of "$1")")" ]]
}

# download TOOL... installs those whose releases are pinned.
download() {
  local tool wanted=() lines version rest
  if [[ $TOOLS_MIRROR == none ]]; then return; fi
  for tool in "$@"; do
    if pin_of "$tool" >/dev/null; then wanted+=("$tool=$(version_of "$tool")=$(path_of "$tool")"); fi
  done
  if ((${#wanted[@]} == 0)); then return; fi
  lines=$(cd "$here/../.." && CGO_ENABLED=0 GOWORK=off go run -trimpath -buildvcs=false ./hack/fetch \
    --pins "$RELEASES" --mirror "$TOOLS_MIRROR" "${wanted[@]}" 9>&-)
  while read -r tool version rest; do
    if [[ -z $tool ]]; then continue; fi
    rm -f "$BIN/.stamps/$tool"
    echo "$tool $version $rest" >"$BIN/.stamps/$tool"
  done <<<"$lines"
}

# build TOOL PLACE builds it; its place in the line is shown.
build() {
  local tool=$1 place=$2 package path stamp flags log pid began=$SECONDS
  package=$(package_of "$tool")
  path=$(path_of "$tool")
  flags=$(ldflags_of "$tool")
  stamp=$(stamp_of "$tool" "$flags")
  log=$BIN/.stamps/$tool.log
  (cd "$(module_dir "$tool")" &&
    exec env CGO_ENABLED=0 GOWORK=off \
      go build -trimpath -buildvcs=false -ldflags="$flags" -o "$path.new" "$package") >"$log" 2>&1 9>&- &
  pid=$!
  # shellcheck disable=SC2064 # the pid is known now
  trap "kill $pid 2>/dev/null || true" EXIT
  watch_build "$pid" "$tool" "$place"
  if ! wait "$pid"; then
    trap - EXIT
    cat "$log" >&2
    echo "build.sh: building $tool failed (see above)" >&2
    return 1
  fi
  trap - EXIT
  rm -f "$path" "$log" "$BIN/.stamps/$tool"
  mv "$path.new" "$path"
  echo "$stamp" >"$BIN/.stamps/$tool"
  printf '  %-24s built in %ds  (%s)\n' "$tool" $((SECONDS - began)) "$place" >&2
}

# missing_of TOOL... prints those that are not there.
missing_of() {
  local tool
  for tool in "$@"; do is_there "$tool" || echo "$tool"; done
}

main() {
  local tool missing i
  # shellcheck disable=SC2086,SC2207 # lists of words
  case $* in
  versions)
    for tool in $tools $providers $node $previous $release; do echo "$tool $(version_of "$tool")"; done
    return
    ;;
  "") set -- $tools ;;
  esac
  for tool in "$@"; do package_of "$tool" >/dev/null; done
  mkdir -p "$BIN/k8s" "$BIN/node/previous" "$BIN/.stamps"
  # Two makes in one tree take turns, and the second finds the work done.
  exec 9>"$BIN/.stamps/lock"
  if ! flock -n 9; then
    echo "  waiting for another build of the tools" >&2
    flock 9
  fi
  missing=($(missing_of "$@"))
  if ((${#missing[@]} == 0)); then return; fi
  echo "Getting tools into $BIN (built from source, they take some ten minutes on two cores once):" >&2
  download "${missing[@]}"
  missing=($(missing_of "${missing[@]}"))
  for i in "${!missing[@]}"; do build "${missing[i]}" "$((i + 1)) of ${#missing[@]}"; done
}

main "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target of the module for FUZZTIME (default 20s), one after the other. PKG limits the packages (default
# ./...), FUZZ the targets (a regular expression). What it finds is written to testdata/fuzz/ beside the target, where
# `go test` runs it from then on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

time=${FUZZTIME:-20s}
pattern=${FUZZ:-^Fuzz}
# A target may take this long on top of its time, for building and for running its corpus first, in seconds.
extra=240

# in_seconds DURATION understands 90, 90s and 2m; Go's count of runs (100x) has no time.
in_seconds() {
  case $1 in
    *x) echo 600 ;;
    *h) echo $((${1%h} * 3600)) ;;
    *m) echo $((${1%m} * 60)) ;;
    *) echo "${1%s}" ;;
  esac
}
limit=$(($(in_seconds "$time") + extra))

# packages prints those that have fuzz targets at all: listing targets runs a package's TestMain.
packages() {
  go list -f '{{$dir := .Dir}}{{range .TestGoFiles}}{{$.ImportPath}} {{$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$.ImportPath}} {{$dir}}/{{.}}{{"\n"}}{{end}}' \
    "${PKG:-./...}" | while read -r package file; do
    if grep -q '^func Fuzz' "$file"; then echo "$package"; fi
  done | sort -u
}

output=$(mktemp)
trap 'rm -f "$output"' EXIT

# fuzz TARGET PACKAGE
fuzz() {
  # Inputs that only cover new code are not made smaller: that takes a minute each, and nobody reads them.
  timeout --kill-after=10 "$limit" go test -run='^$' -fuzz="^$1\$" -fuzztime="$time" -fuzzminimizetime=10x \
    -parallel="${FUZZ_WORKERS:-$(nproc)}" "$2" 2>&1 | tee "$output"
}

# out_of_time TARGET tells whether the last run failed because its time was over, and for nothing else: before Go 1.27
# that happens now and then on a busy machine (go.dev/issue/75804). An input that fails would have been written.
out_of_time() {
  grep -A1 "^--- FAIL: $1 (" "$output" | grep -qx ' *context deadline exceeded' && ! grep -q 'Failing input written' "$output"
}

count=0
began=$SECONDS
failed=()
for package in $(packages); do
  if ! listed=$(timeout "$extra" go test -list "$pattern" "$package"); then
    echo "$listed"
    failed+=("listing the targets of $package")
    continue
  fi
  for target in $(grep '^Fuzz' <<<"$listed" || true); do
    count=$((count + 1))
    echo "--- $target of $package, for $time"
    for try in 1 2 3; do
      status=0
      fuzz "$target" "$package" || status=$?
      if ((status == 0 || try == 3)) || ! out_of_time "$target"; then break; fi
      echo "--- $target found nothing, but its end was taken for a failure: once more"
    done
    if ((status)); then
      failed+=("$target of $package (exit status $status)")
    fi
  done
done

echo "=== $count fuzz targets in $((SECONDS - began))s, ${#failed[@]} failed"
if ((count == 0)); then
  echo "there are no fuzz targets" >&2
  exit 1
fi
if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  echo "The input is in the new file in testdata/fuzz/<target>/ of the package; it is also printed above. To run it again:" >&2
  echo "  go test ./<package> -run '<target>/<file>'" >&2
  git ls-files --others --exclude-standard -- '*/testdata/fuzz/*' | while read -r file; do
    echo "--- $file"
    cat "$file"
  done >&2
  exit 1
fi

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target of the module for FUZZTIME (default 20s), as many side by side as there are processors (FUZZ_JOBS), each with one
# worker (FUZZ_WORKERS). PKG limits the packages (default ./...), FUZZ the targets (a regular expression). What it finds is written to
# testdata/fuzz/ beside the target, where `go test` runs it from then on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

time=${FUZZTIME:-20s}
pattern=${FUZZ:-^Fuzz}
# A target may take this long on top of its time, for running its corpus first, in seconds.
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

dir=$(mktemp -d)
finish() {
  local still
  still=$(jobs -rp)
  # shellcheck disable=SC2086 # a list of numbers
  if [[ -n $still ]]; then kill $still 2>/dev/null || true; fi
  wait
  rm -rf "$dir"
}
trap finish EXIT
cache=$(go env GOCACHE)/fuzz

# out_of_time TARGET OUTPUT tells whether the run failed because its time was over, and for nothing else: before Go 1.27
# that happens now and then on a busy machine (go.dev/issue/75804). An input that fails would have been written.
out_of_time() {
  grep -A1 "^--- FAIL: $1 (" "$2" | grep -qx ' *context deadline exceeded' && ! grep -q 'Failing input written' "$2"
}

# fuzz TARGET PACKAGE DIRECTORY PROGRAM OUTPUT writes its exit status to OUTPUT.status.
fuzz() {
  local try status pid
  trap 'kill "$pid" 2>/dev/null; exit 143' TERM
  cd "$3"
  for try in 1 2 3; do
    status=0
    # Inputs that only cover new code are not made smaller: that takes a minute each, and nobody reads them.
    timeout --kill-after=10 "$limit" "$4" -test.run='^$' -test.fuzz="^$1\$" -test.fuzztime="$time" -test.fuzzminimizetime=10x \
      -test.fuzzcachedir="$cache/$2" -test.parallel="${FUZZ_WORKERS:-1}" >"$5" 2>&1 &
    pid=$!
    wait "$pid" || status=$?
    if ((status == 0 || try == 3)) || ! out_of_time "$1" "$5"; then break; fi
    echo "--- $1 found nothing, but its end was taken for a failure: once more"
  done
  echo "$status" >"$5.ended"
  mv "$5.ended" "$5.status" # at once: report may be looking
}

began=$SECONDS
count=0
failed=()
jobs=${FUZZ_JOBS:-$(nproc)}

# report tells how those ended that have, and forgets them.
report() {
  local file target package status
  for file in "$dir"/*.status; do
    [[ -e $file ]] || continue
    read -r target package <"${file%.status}.name"
    status=$(cat "$file")
    echo "--- $target of $package, for $time"
    cat "${file%.status}"
    if ((status)); then failed+=("$target of $package (exit status $status)"); fi
    rm "$file"
  done
}

for package in $(packages); do
  where=$(go list -f '{{.Dir}}' "$package")
  program=$dir/${package//\//_}.test
  # With -fuzz it is built so that it sees what an input reaches.
  if ! go test -c -fuzz="$pattern" -o "$program" "$package" || ! listed=$(cd "$where" && "$program" -test.list "$pattern"); then
    failed+=("building or listing the targets of $package")
    continue
  fi
  for target in $(grep '^Fuzz' <<<"$listed" || true); do
    while (($(jobs -rp | wc -l) >= jobs)); do
      wait -n || true
      report
    done
    count=$((count + 1))
    echo "$target $package" >"$dir/$count.name"
    fuzz "$target" "$package" "$where" "$program" "$dir/$count" &
  done
done
wait
report

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

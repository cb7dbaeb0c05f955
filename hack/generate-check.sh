#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails if generating changes, adds or removes a file below the given paths.
# It compares with what is on disk, so it also works in a tree with changes;
# in a fresh clone, that is what was committed.
#
# usage: hack/generate-check.sh PATH...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT

cp --parents -r "$@" "$before/"
hack/generate.sh

drift=0
for path in "$@"; do
  diff -ruN "$before/$path" "$path" || drift=1
done
if ((drift)); then
  echo "generated files were not up to date; they are now: see the difference above, run 'make generate' and commit" >&2
  exit 1
fi

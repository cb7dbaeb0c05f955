#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# size.sh [COMMIT] prints the lines of code and the bytes of documents of the working tree, and by how much they differ
# from a commit. Default: the commit before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=${1:-HEAD~1}

# What is generated is not counted.
generated='zz_generated|^charts/capmaas/(crds|files/crds)/|^docs/(variables|capmaasctl|reasons).md$'
tools='^(test|e2e|hack)/|^pkg/maas/simulator/|_test\.go$|/testdata/'

# list TREE AREA prints the files of an area.
list() {
  git ls-tree -r --name-only "$1" | grep -Ev "$generated" | case $2 in
    product) grep -E '\.go$' | grep -Ev "$tools" ;;
    tests) grep -E '\.go$' | grep -E "$tools" ;;
    golden) grep -E '/golden/' ;;
    documents) grep -E '\.md$' ;;
  esac
}

# measure TREE AREA prints its lines, or bytes for documents.
measure() {
  local files how=-l
  files=$(list "$1" "$2" | sed "s|^|$1:|")
  if [[ $2 == documents ]]; then how=-c; fi
  # cat-file adds two line ends for each file.
  echo $(($(git cat-file --batch='' --buffer <<<"$files" | wc $how) - 2 * $(wc -l <<<"$files")))
}

tree=$(git write-tree)
known=yes
git rev-parse --quiet --verify "$base^{commit}" >/dev/null || known= # A clone without history.
for area in product tests golden documents; do
  now=$(measure "$tree" "$area")
  unit=$([[ $area == documents ]] && echo bytes || echo lines)
  if [[ $known ]]; then
    printf '%-10s %9d %s, %+d since %s\n' "$area" "$now" "$unit" $((now - $(measure "$base" "$area"))) "$base"
  else
    printf '%-10s %9d %s\n' "$area" "$now" "$unit"
  fi
done

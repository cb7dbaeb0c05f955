#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the site of the documents, in $BIN/site.
#
# usage: hack/site/build.sh [check]     (check: write nothing, and fail if a link leads nowhere, or a page is in no task)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
BIN=${BIN:-$PWD/bin}
mermaid=mermaid@11.17.2

if ! command -v sphinx-build >/dev/null || ! /usr/bin/python3 -c 'import furo, myst_parser' 2>/dev/null; then
  echo "the site needs: apt-get install --no-install-recommends furo python3-myst-parser" >&2
  exit 1
fi

# sphinx ARGUMENT... reads all pages anew: it does not know that README.md changes the navigation of each.
sphinx() { sphinx-build -q -E -n -c hack/site -d "$BIN/.site" "$@"; }

if [[ ${1:-} == check ]]; then
  sphinx -b dummy -W --keep-going . "$BIN/.site/none"
  exit
fi

rm -rf "$BIN/site"
sphinx -b html . "$BIN/site"
# What draws the diagrams. npm verifies what it downloads, once for each version.
if [[ ! -e $BIN/.site/$mermaid.js ]]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  if npm pack --silent --pack-destination "$tmp" "$mermaid" >/dev/null; then
    tar --extract --file "$tmp"/*.tgz --to-stdout package/dist/mermaid.min.js >"$tmp/mermaid.js"
    mv "$tmp/mermaid.js" "$BIN/.site/$mermaid.js"
  else
    echo "without npm, pages show their diagrams as text" >&2
    exit
  fi
fi
cp "$BIN/.site/$mermaid.js" "$BIN/site/_static/mermaid.min.js"

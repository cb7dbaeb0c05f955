#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# skipped.sh FILE names the tests that were skipped because of what this computer lacks. They have noted themselves in
# FILE: see test/needs.
set -euo pipefail

[[ -s $1 ]] || exit 0
# Directory, test and reason: a test is named once, without its subtests.
awk -F'\t' -v OFS='\t' -v root="$PWD/" '{ sub(root, "", $1); sub("/.*", "", $2); print $3, $1, $2 }' "$1" | sort -u |
  awk -F'\t' '
    $1 != why { printf "%s\nSkipped, or tested in part: %s\n", why == "" ? "" : "\n", $1; why = $1; dir = "" }
    $2 != dir { printf "%s  %s:", dir == "" ? "" : "\n", $2; dir = $2 }
    { printf " %s", $3 }
    END { print "" }'

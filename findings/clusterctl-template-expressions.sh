#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# clusterctl's templates look like a shell's, and expressions mean something else.
#
# Software: clusterctl's template processor of sigs.k8s.io/cluster-api v1.14.2 (yamlprocessor, on drone/envsubst).
# Expected: ${A:+x} is "x" if A is set, and "" if not; ${A:?x} fails if A is not set; ${A:2:3} and ${A/x/y} of an unset
#   variable are reported as a missing variable, as ${A} is; ${A:=${B}} takes B's value.
# Seen: ${A:+x} is the reverse: "x" if A is not set, A's value if it is. ${A:?x} is "x". The arguments of every operator
#   count as a default, so that a substring or a replacement of a variable that nobody set is "", without an error. A
#   variable inside of a default is not listed among the variables, and is "" without an error where it is not set.
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.com/expressions

go 1.25
MOD
cat >main.go <<'GO'
package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

func main() {
	processor := yamlprocessor.NewSimpleProcessor()
	for _, text := range []string{"${A}", "${A:+x}", "${A:?x}", "${A:2:3}", "${A/x/y}", "${A:=${B}}"} {
		variables, err := processor.GetVariableMap([]byte(text))
		if err != nil {
			panic(err)
		}
		result := func(values map[string]string) string {
			out, err := processor.Process([]byte(text), func(name string) (string, error) {
				if value, ok := values[name]; ok {
					return value, nil
				}
				return "", errors.New("not set")
			})
			if err != nil {
				return "an error"
			}
			return fmt.Sprintf("%q", out)
		}
		fmt.Printf("%s: variables %v; nothing is set: %s; A is set: %s; B is set: %s\n", text, slices.Sorted(maps.Keys(variables)),
			result(nil), result(map[string]string{"A": "value"}), result(map[string]string{"B": "other"}))
	}
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go get sigs.k8s.io/cluster-api@v1.14.2 sigs.k8s.io/cluster-api/api@v1.14.2 2>/dev/null
go mod tidy 2>/dev/null
go run . >seen
cat seen
diff - seen <<'WANT'
${A}: variables [A]; nothing is set: an error; A is set: "value"; B is set: an error
${A:+x}: variables [A]; nothing is set: "x"; A is set: "value"; B is set: "x"
${A:?x}: variables [A]; nothing is set: "x"; A is set: "value"; B is set: "x"
${A:2:3}: variables [A]; nothing is set: ""; A is set: "lue"; B is set: ""
${A/x/y}: variables [A]; nothing is set: ""; A is set: "value"; B is set: ""
${A:=${B}}: variables [A]; nothing is set: ""; A is set: "value"; B is set: "other"
WANT

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Generates what comes from the Go markers: deepcopy methods, the CRDs, which hack/crds
# completes, and the manager's RBAC rules, the latter two for the chart. And what comes from the
# comments in the chart's values.yaml: its schema.
# And what comes from the ClusterClass: those of other distributions, and the reference of its variables.
# And the reference of capmaasctl, from its commands. And the pages about reasons, and what capmaasctl knows of them,
# from the comments on them. And sections of documents.
# CAPMAAS_BIN must hold controller-gen.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

controller_gen=${CAPMAAS_BIN:?}/controller-gen
chart=charts/capmaas/files

# A marker in a function's own doc comment is not seen by controller-gen: the rule would be missing, silently.
markers=$(grep -rlE '^// ?\+kubebuilder:rbac' --include='*.go' controllers cmd || true)
# shellcheck disable=SC2086 # a list of paths
awk 'FNR > 1 && before ~ /^\/\/ ?\+kubebuilder:rbac/ && !/^$|^\/\/ ?\+kubebuilder:rbac/ {
       print FILENAME ":" FNR ": an empty line is needed below +kubebuilder:rbac markers" > "/dev/stderr"
       lost = 1
     }
     { before = $0 }
     END { exit lost }' $markers </dev/null

generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT

"$controller_gen" object:headerFile=hack/boilerplate.go.txt paths=./api/...

# Into a directory of its own first, so that a kind that was removed takes its file with it.
"$controller_gen" crd:headerFile=hack/boilerplate.yaml.txt paths=./api/... output:crd:dir="$generated/crds"
go run ./hack/crds --dir "$generated/crds"
# What only an option needs is a role of its own.
mapfile -t always < <(go list ./controllers/... ./cmd/... | grep -v '/controllers/evacuation$')
"$controller_gen" rbac:roleName=manager,headerFile=hack/boilerplate.yaml.txt \
  "${always[@]/#/paths=}" output:rbac:dir="$generated/rbac"
"$controller_gen" rbac:roleName=evacuation,fileName=evacuation.yaml,headerFile=hack/boilerplate.yaml.txt \
  paths=./controllers/evacuation output:rbac:dir="$generated/rbac"

for kind in crds rbac; do
  mkdir -p "$chart/$kind" "$generated/$kind"
  rm -f "$chart/$kind"/*.yaml
  find "$generated/$kind" -name '*.yaml' -exec cp -t "$chart/$kind" {} +
done

go run ./hack/chart --chart charts/capmaas
go run ./hack/clusterclass
go run ./hack/reasons
go run ./hack/sections
go test -vet=off ./cmd/capmaasctl -run TestReference -args -update >/dev/null

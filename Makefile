# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

CHART := charts/capmaas
MODULE := github.com/capmaas/cluster-api-provider-maas

# The release that is being built. clusterctl wants a semantic version.
ifeq ($(origin VERSION), undefined)
VERSION := $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.1.0-dev)
endif

# Everything that is built goes to bin/, the control plane to bin/k8s/.
# Tests and the sandbox find both through the environment.
BIN := $(abspath bin)
OUT ?= out
export CAPMAAS_BIN := $(BIN)
GIVEN_ASSETS := $(KUBEBUILDER_ASSETS)
override export KUBEBUILDER_ASSETS := $(BIN)/k8s

# One set of flags for tools, programs, tests and linters, so that each package
# is compiled once. RACE=1 turns the race detector on, which needs a C compiler.
RACE ?=
export CGO_ENABLED := $(if $(RACE),1,0)
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

# build-tools,LIST: those that are missing or older than their pins, downloaded or built.
build-tools = BIN=$(BIN) KUBEBUILDER_ASSETS='$(GIVEN_ASSETS)' hack/tools/build.sh $(1)

CONTROL_PLANE := etcd kube-apiserver kubectl kube-controller-manager
# Controllers of bootstrap providers. Tests use those that are there: `make e2e` builds them, and each takes minutes.
PROVIDER_TOOLS := rke2-bootstrap rke2-control-plane k3s-bootstrap k3s-control-plane dev
# All that tests and documents call, and what the directions of the demo name.
TEST_TOOLS := $(CONTROL_PLANE) clusterctl helm kustomize $(notdir $(wildcard $(addprefix $(BIN)/,$(PROVIDER_TOOLS))))

##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make TARGET [VAR=value...]"} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-zA-Z0-9_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: clean
clean: ## Remove what the build made, except the tools.
	rm -rf $(OUT)
	rm -f $(addprefix $(BIN)/,$(COMMANDS) demo)

.PHONY: clean-tools
clean-tools: ## Remove the tools and control-plane binaries.
	rm -rf $(BIN)

##@ Build

COMMANDS = $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))
GO_LDFLAGS = -s -w -X main.version=$(VERSION)
GO_BUILD = CGO_ENABLED=0 go build -buildvcs=false -ldflags='$(GO_LDFLAGS)'

.PHONY: build
build: ## Build every program of cmd/ into bin/, static (GOFIPS140=v1.0.0 for FIPS 140-3).
	@for name in $(COMMANDS); do \
		echo "$(GO_BUILD) -o $(BIN)/$$name ./cmd/$$name"; \
		$(GO_BUILD) -o $(BIN)/$$name ./cmd/$$name; \
	done

.PHONY: tools
tools: ## Download, or build, all pinned tools (TOOLS_MIRROR=address of a mirror; none: build them).
	@$(call build-tools,)

##@ Try it

# Real nodes need more, and whoever lacks it should know before anything is built.
REAL = $(filter --real,$(DEMO_ARGS))

.PHONY: demo
demo: $(if $(REAL),check-node) tools-test build $(if $(REAL),tools-node) $(if $(filter --mixed,$(DEMO_ARGS)),tools-dev)
demo: ## Run the whole story in a sandbox (DEMO_ARGS=--once exits by itself; --drain, --real, --mixed, --empty).
	@$(GO_BUILD) -o $(BIN)/demo ./test/demo
	@exec $(BIN)/demo $(DEMO_ARGS)

.PHONY: dev
dev: DEMO_ARGS += --dev
dev: demo ## A sandbox that stays up: Enter builds the manager anew, and upgrades the chart.

##@ Deploy

RELEASE ?= capmaas
NAMESPACE ?= capmaas-system
HELM_ARGS ?=

.PHONY: deploy
deploy: tools-helm ## Install or upgrade the chart (IMG, HELM_ARGS; MAAS_ENDPOINT, and MAAS_API_KEY or MAAS_SECRET).
	@IMG='$(IMG)' INITIALIZER_IMG='$(INITIALIZER_IMG)' \
		hack/deploy.sh $(BIN)/helm $(RELEASE) $(CHART) $(NAMESPACE) $(HELM_ARGS)

.PHONY: undeploy
undeploy: tools-helm ## Uninstall the chart; its CRDs, and with them all clusters, stay.
	$(BIN)/helm uninstall $(RELEASE) --namespace $(NAMESPACE) --wait --timeout 5m

##@ Test

PKG ?= ./...
TEST_ARGS ?=
TEST_TIMEOUT ?= 50m
# How many packages are tested at once. Those with a sandbox wait more than they compute.
TEST_JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n > 5 ? n : 5)))
# What takes longest begins first, so that no processor is idle at the end.
LONGEST := ./controllers ./e2e/crash ./e2e/chaos ./e2e/flows ./e2e/packaging ./e2e/clusterctl ./e2e/chaos/outage \
	./test/conformance ./e2e/rights ./e2e/upgrade ./e2e/hosts ./e2e/chaos/drains ./cmd/lxd-initializer \
	./cmd/capmaasctl ./pkg/lxdnode ./pkg/lxdhost
# packages,LIST: the list, if what has just printed it did not fail: it prints those packages that are not broken.
packages = $(1)$(if $(filter-out 0,$(.SHELLSTATUS)),$(error go list fails))
# What other targets and built bootstrap providers test: to link it costs as much as others' tests.
ELSEWHERE = $(addprefix $(MODULE)/e2e/,boot load real release \
	$(if $(CAPMAAS_REQUIRE_PROVIDERS)$(wildcard $(addprefix $(BIN)/,$(PROVIDER_TOOLS))),,bootstrap))
# `make test race` runs the tests of RACE_PACKAGES once: with the race detector.
ALL_PACKAGES = $(LONGEST) $(filter-out $(ELSEWHERE) $(if $(filter race,$(MAKECMDGOALS)),$(RACE_PACKAGES)),\
	$(call packages,$(shell go list ./...)))
# pkg,LIST: the packages that were asked for, or the list.
pkg = $(if $(filter-out file,$(origin PKG)),$(PKG),$(1))
# Garbage is collected seldom until a process is large: that is a fifth of what the tests would compute.
# `make lint` vets.
GO_TEST = GOGC=400 GOMEMLIMIT=2GiB go test -vet=off $(if $(RACE),-race)

.PHONY: test
test: test-packages $(if $(filter file,$(origin PKG)),test-specs)
test: ## Run all tests (PKG=./api/..., TEST_ARGS='-run X -v', RACE=1, LXD_PLAYED=6.9).

# Go's cache of tests does not know the programs that the sandbox runs: nothing comes from it.
.PHONY: test-packages
test-packages: tools-test build
	@rm -f $(BIN)/skipped
	trap 'hack/skipped.sh $(BIN)/skipped' EXIT; CAPMAAS_SKIPPED=$(BIN)/skipped CAPMAAS_BUILT=1 \
		$(GO_TEST) -count=1 -p $(TEST_JOBS) -timeout $(TEST_TIMEOUT) $(TEST_ARGS) $(if $(pkg),$(PKG),$(ALL_PACKAGES))

# Packages whose tests start no control plane: neither envtest nor the sandbox is imported.
UNIT_PACKAGES = $(call packages,$(shell \
	go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | \
	grep -vE 'controller-runtime/pkg/envtest|$(MODULE)/test/sandbox' | cut -d' ' -f1))

.PHONY: unit
unit: ## Run the tests that need no control plane.
	$(GO_TEST) -timeout 5m $(TEST_ARGS) $(UNIT_PACKAGES)

# What runs concurrently on its own; with Kubernetes' packages, or LXD's daemons, it would cost minutes more.
RACE_PACKAGES = $(call packages,$(shell go list ./pkg/... ./test/simulator | grep -vE "/(scope|lxdnode|lxdhost)$$"))

.PHONY: race
race: ## Run the tests of pkg/ with the race detector, with what processor time others leave.
	nice env CGO_ENABLED=1 $(GO_TEST) -race -timeout 40m $(TEST_ARGS) $(RACE_PACKAGES)

.PHONY: size
size: ## Print the lines of code and bytes of documents, and by how much they differ from a commit (SINCE=main~1).
	@hack/size.sh $(SINCE)

##@ Code

GENERATED := api $(CHART) clusterclass hack/crds/schema.yaml internal/reasons $(wildcard docs/*.md) docs/adr/README.md

.PHONY: generate
generate: tools-controller-gen ## Generate CRDs, RBAC, schemas, other ClusterClasses and parts of the documents.
	@hack/generate.sh

.PHONY: generate-check
generate-check: tools-controller-gen ## Fail if generated files differ from what generate would write.
	@hack/generate-check.sh $(GENERATED)

.PHONY: tidy-check
tidy-check: ## Fail if go.mod or go.sum is not tidy.
	go mod tidy -diff
	cd $(CAPI_SPECS) && go mod tidy -diff

.PHONY: verify
verify: generate-check tidy-check lint lint-specs ## Run all checks that are no tests.

.PHONY: lint
lint: tools-golangci-lint tools-helm ## Run golangci-lint, and helm lint on the chart.
	$(BIN)/golangci-lint run $(LINT_ARGS)
	$(BIN)/helm lint --strict --quiet $(CHART)

# Apart from lint: it takes a processor for one to two minutes, even if nothing was changed.
.PHONY: lint-specs
lint-specs: tools-golangci-lint ## Run golangci-lint on the module of Cluster API's specs.
	cd $(CAPI_SPECS) && $(BIN)/golangci-lint run

.PHONY: lint-fix
lint-fix: tools-golangci-lint ## Run golangci-lint and let it repair what it can.
	$(BIN)/golangci-lint run --fix $(LINT_ARGS)

.PHONY: fmt
fmt: tools-golangci-lint ## Format the Go code.
	$(BIN)/golangci-lint fmt

include hack/make/suites.mk hack/make/documents.mk hack/make/release.mk hack/make/tools.mk

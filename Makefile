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
PROVIDER_TOOLS := rke2-bootstrap rke2-control-plane k3s-bootstrap k3s-control-plane
# All that tests and documents call, and what the demo's directions name: docs/tools_test.go compares.
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
tools: ## Download, or build, all pinned tools and control-plane binaries (TOOLS_MIRROR=address of a mirror; none: build them).
	@$(call build-tools,)

.PHONY: tools-pins
tools-pins: ## Look up the checksums of the tools' official releases, and write hack/tools/releases.
	hack/tools/build.sh versions | go run ./hack/fetch --pin --mirror '$(TOOLS_MIRROR)'

.PHONY: manifests
manifests: ## Write a clusterctl repository, and lxd-initializer-daemonset.yaml, to OUT (default out/), for VERSION and the images.
	go run ./hack/manifests --out $(OUT) --version $(VERSION) --image $(IMG) --initializer-image '$(INITIALIZER_MANIFEST_IMG)'

IMAGE_CONTEXT = $(OUT)/image
TAG ?= $(VERSION)
REGISTRY ?=
IMG ?= $(if $(REGISTRY),$(REGISTRY)/)capmaas-manager:$(TAG)
INITIALIZER_IMG ?= $(if $(REGISTRY),$(REGISTRY)/)capmaas-lxd-initializer:$(TAG)
# Without a registry the manifest keeps its placeholders ${REGISTRY} and ${TAG}.
INITIALIZER_MANIFEST_IMG = $(if $(REGISTRY)$(filter-out file,$(origin INITIALIZER_IMG)),$(INITIALIZER_IMG))
IMAGE_ARCH ?= $(shell go env GOARCH)
# docker or buildah; default: whichever works here.
IMAGE_TOOL ?=
# A file with the CA roots of the images; default: those that hack/tools/roots pins.
CA_CERTIFICATES ?=

images = IMG='$(IMG)' INITIALIZER_IMG='$(INITIALIZER_IMG)' ARCHS='$(IMAGE_ARCH)' CONTEXT='$(IMAGE_CONTEXT)' \
	VERSION='$(VERSION)' LDFLAGS='$(GO_LDFLAGS)' CA_CERTIFICATES='$(CA_CERTIFICATES)' TOOL='$(IMAGE_TOOL)' hack/images.sh

.PHONY: docker-build
docker-build: ## Build the images with docker or buildah (REGISTRY and TAG, or IMG and INITIALIZER_IMG; IMAGE_ARCH="amd64 arm64", GOFIPS140=v1.0.0).
	@$(images) build

.PHONY: docker-push
docker-push: ## Push the images (as docker-build).
	@$(images) push

##@ Release

RELEASE_ARCHS ?= amd64 arm64
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
# With SIGN=1, cosign signs: with COSIGN_KEY (a file, or a key in a KMS), or without one as the workflow that runs.
SIGN ?=
COSIGN_KEY ?=
# Which of Sigstore's services take part, if not the public ones.
COSIGN_SIGNING_CONFIG ?=

.PHONY: release
release: IMAGE_ARCH = $(RELEASE_ARCHS)
release: ## Make a release, for VERSION, in OUT/release, and push its images and chart to REGISTRY (SIGN=1, COSIGN_KEY=FILE).
	@if [[ -z '$(REGISTRY)' ]]; then echo "say where the images and the chart go: REGISTRY=ghcr.io/capmaas" >&2; exit 1; fi
	@$(call build-tools,cyclonedx-gomod $(if $(SIGN),cosign))
	@$(images) build
	@$(images) push
	go run ./hack/release --out '$(OUT)/release' --version '$(VERSION)' --registry '$(REGISTRY)' \
		--image-manager '$(IMG)' --image-lxd-initializer '$(INITIALIZER_IMG)' --image-context '$(IMAGE_CONTEXT)' \
		--archs '$(IMAGE_ARCH)' --platforms '$(RELEASE_PLATFORMS)' --ldflags '$(GO_LDFLAGS)' --cyclonedx-gomod $(BIN)/cyclonedx-gomod \
		$(if $(SIGN),--cosign $(BIN)/cosign --cosign-key '$(COSIGN_KEY)' --cosign-signing-config '$(COSIGN_SIGNING_CONFIG)')

.PHONY: tools-release
tools-release:
	@$(call build-tools,capi-operator cosign cyclonedx-gomod krew)

.PHONY: release-dry-run
release-dry-run: tools-test tools-release lint-workflows ## Make a release, publish it on this computer, and install, upgrade and verify from there (RELEASE_ARCHS, RELEASE_PLATFORMS).
	CAPMAAS_RELEASE=1 RELEASE_ARCHS='$(RELEASE_ARCHS)' RELEASE_PLATFORMS='$(RELEASE_PLATFORMS)' \
		$(GO_TEST) -count=1 -v -timeout 90m $(TEST_ARGS) ./e2e/release

.PHONY: lint-workflows
lint-workflows: ## Check the workflows of GitHub with actionlint.
	@$(call build-tools,actionlint)
	$(BIN)/actionlint

##@ Try it

# Real nodes need more, and whoever lacks it should know before anything is built.
REAL = $(filter --real,$(DEMO_ARGS))

.PHONY: demo
demo: $(if $(REAL),check-node) tools-test build $(if $(REAL),tools-node) ## Run the whole story in a sandbox (DEMO_ARGS=--once to exit by itself, --drain to empty a host, --real for real nodes, --empty for a sandbox to try everything by hand).
	@$(GO_BUILD) -o $(BIN)/demo ./test/demo
	@exec $(BIN)/demo $(DEMO_ARGS)

.PHONY: recording
recording: tools-test build ## Record the demo for README (with real LXD daemons).
	CAPMAAS_BUILT=1 CAPMAAS_DEMO=1 $(GO_TEST) -count=1 -run TestTheDemoIsRecorded ./test/demo -args -update

.PHONY: dev
dev: DEMO_ARGS += --dev
dev: demo ## A sandbox that stays up: Enter builds the manager anew, upgrades the chart and starts the manager again.

##@ Deploy

RELEASE ?= capmaas
NAMESPACE ?= capmaas-system
HELM_ARGS ?=

# The key goes to helm through a file descriptor: command lines are public.
# Values of an earlier deploy stay unless given anew.
.PHONY: deploy
deploy: tools-helm ## Install or upgrade the chart (IMG, HELM_ARGS; environment: MAAS_ENDPOINT, and MAAS_API_KEY or MAAS_SECRET).
	@img=$(IMG); lxd=$(INITIALIZER_IMG); args=(--set-string "image.repository=$${img%:*}" --set-string "image.tag=$${img##*:}" \
		--set-string "lxdInitializer.image.repository=$${lxd%:*}" --set-string "lxdInitializer.image.tag=$${lxd##*:}"); \
	if [[ -n $${MAAS_ENDPOINT:-} ]]; then args+=(--set-string "maas.endpoint=$$MAAS_ENDPOINT"); fi; \
	if [[ -n $${MAAS_SECRET:-} ]]; then args+=(--set-string "maas.existingSecret=$$MAAS_SECRET"); fi; \
	if [[ -n $${MAAS_API_KEY:-} ]]; then \
		exec 3< <(printf %s "$$MAAS_API_KEY"); \
		args+=(--set-file maas.apiKey=/dev/fd/3); \
	fi; \
	unset MAAS_API_KEY; \
	$(BIN)/helm upgrade --install $(RELEASE) $(CHART) --namespace $(NAMESPACE) --create-namespace \
		--reset-then-reuse-values --wait --timeout 5m "$${args[@]}" $(HELM_ARGS)

.PHONY: undeploy
undeploy: tools-helm ## Uninstall the chart; its CRDs, and with them all clusters, stay.
	$(BIN)/helm uninstall $(RELEASE) --namespace $(NAMESPACE) --wait --timeout 5m

##@ Test

PKG ?= ./...
TEST_ARGS ?=
TEST_TIMEOUT ?= 50m
# How many packages are tested at once. Those with a sandbox wait more than they compute.
TEST_JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n > 5 ? n : 5)))
# What takes longest begins first, so that no processor is idle at the end. Results are told in the order of the packages.
LONGEST := ./controllers ./e2e/crash ./e2e/chaos ./e2e/flows ./e2e/packaging ./e2e/clusterctl ./e2e/chaos/outage ./test/conformance ./e2e/rights ./e2e/upgrade \
	./e2e/hosts ./e2e/chaos/drains ./cmd/lxd-initializer ./cmd/capmaasctl ./pkg/lxdnode ./pkg/lxdhost
# packages,LIST: the list, if what has just printed it did not fail: it prints those packages that are not broken.
packages = $(1)$(if $(filter-out 0,$(.SHELLSTATUS)),$(error go list fails))
# What only `make real`, `make release-dry-run`, `make bench` and built bootstrap providers test: to link it costs as much as others' tests.
ELSEWHERE = $(addprefix $(MODULE)/e2e/,boot load real release \
	$(if $(CAPMAAS_REQUIRE_PROVIDERS)$(wildcard $(addprefix $(BIN)/,$(PROVIDER_TOOLS))),,bootstrap))
# `make test race` runs the tests of RACE_PACKAGES once: with the race detector.
ALL_PACKAGES = $(LONGEST) $(filter-out $(ELSEWHERE) $(if $(filter race,$(MAKECMDGOALS)),$(RACE_PACKAGES)),\
	$(call packages,$(shell go list ./...)))
TEST_PACKAGES = $(if $(filter-out file,$(origin PKG)),$(PKG),$(ALL_PACKAGES))
# Garbage is collected seldom until a process is large: that is a fifth of what the tests would compute.
# `make lint` vets.
GO_TEST = GOGC=400 GOMEMLIMIT=2GiB go test -vet=off $(if $(RACE),-race)

# The version that the LXDs of tests play; default: their own. test-lxd-played tests those that differ.
LXD_PLAYED ?=
ifneq ($(LXD_PLAYED),)
export CAPMAAS_LXD_PLAYED := $(LXD_PLAYED)
endif
LXD_VERSIONS ?= 5.21.7 6.6 6.7 6.8 6.9

.PHONY: test
test: test-packages $(if $(filter file,$(origin PKG)),test-specs) ## Run all tests (PKG=./api/..., TEST_ARGS='-run X -v', RACE=1, LXD_PLAYED=6.9).

# Go's cache of tests does not know the programs that the sandbox runs: nothing comes from it.
.PHONY: test-packages
test-packages: tools-test build
	CAPMAAS_BUILT=1 $(GO_TEST) -count=1 -p $(TEST_JOBS) -timeout $(TEST_TIMEOUT) $(TEST_ARGS) $(TEST_PACKAGES)

# What is closest to LXD, and all else whose tests run one.
LXD_PACKAGES := ./test/sandbox/lxd/... ./pkg/lxdnode ./pkg/lxdhost
LXD_USERS := $(LXD_PACKAGES) ./pkg/maas/lxd ./cmd/lxd-initializer ./cmd/capmaasctl ./controllers/lxdhost ./test/simulator
# Those tests of ./controllers that run one.
LXD_CONTROLLERS := LXDHost|Direct|ALost|LXDRefused|LXDCant|ADevice|AnIDThat|NoVMIsMade|NameServers|ClaimsToBeOurVM|AnLXD

.PHONY: test-lxd-played
test-lxd-played: tools-test build ## Run all tests that have an LXD with each version that it plays (LXD_VERSIONS="6.6 6.9", PKG=./pkg/lxdnode).
	@for version in $(LXD_VERSIONS); do \
		echo "LXD $$version"; export CAPMAAS_BUILT=1 CAPMAAS_LXD_PLAYED=$$version; \
		$(GO_TEST) -count=1 -p $(TEST_JOBS) -timeout 20m $(TEST_ARGS) $(if $(filter-out file,$(origin PKG)),$(PKG),$(LXD_USERS)); \
		$(if $(filter-out file,$(origin PKG)),,$(GO_TEST) -count=1 -timeout 20m -run '$(LXD_CONTROLLERS)' ./controllers); \
	done

# Packages whose tests start no control plane: neither envtest nor the sandbox is imported.
UNIT_PACKAGES = $(call packages,$(shell go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | \
	grep -vE 'controller-runtime/pkg/envtest|$(MODULE)/test/sandbox' | cut -d' ' -f1))

.PHONY: unit
unit: ## Run the tests that need no control plane.
	$(GO_TEST) -timeout 5m $(TEST_ARGS) $(UNIT_PACKAGES)

# What runs concurrently on its own; with Kubernetes' packages, or LXD's daemons, it would cost minutes more. The simulator's
# own tests attack it from many sides at once; its conformance suite does not.
RACE_PACKAGES = $(call packages,$(shell go list ./pkg/... ./test/simulator | grep -vE "/(scope|lxdnode|lxdhost)$$"))

.PHONY: race
race: ## Run the tests of pkg/ with the race detector, with what processor time others leave.
	nice env CGO_ENABLED=1 $(GO_TEST) -race -timeout 40m $(TEST_ARGS) $(RACE_PACKAGES)

# Where there is no second LXD it is not tested, unless CAPMAAS_REQUIRE_LXD is set.
.PHONY: test-lxd-second
test-lxd-second: ## Run the tests closest to LXD with another LXD than the machine's: Debian 13's (root, Debian 12 or 13, amd64).
	@if $(lxd-second); then \
		CAPMAAS_LXD=$(BIN)/lxd-second/lxd $(GO_TEST) -count=1 -timeout 20m $(TEST_ARGS) $(if $(filter-out file,$(origin PKG)),$(PKG),$(LXD_PACKAGES)); \
	elif [[ -n $${CAPMAAS_REQUIRE_LXD:-} ]]; then exit 1; fi

lxd-second = BIN=$(BIN) hack/tools/lxd-second.sh

.PHONY: lxd-second
lxd-second: ## Fetch that LXD into bin/lxd-second. With CAPMAAS_LXD=$PWD/bin/lxd-second/lxd every test uses it.
	@$(lxd-second)

.PHONY: size
size: ## Print the lines of code and bytes of documents, and by how much they differ from a commit (SINCE=main~1).
	@hack/size.sh $(SINCE)

.PHONY: figures
figures: tools-test build ## Measure what machines cost MAAS, LXD, Kubernetes and the manager, beside the allowed ranges of test/figures.
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	CAPMAAS_BUILT=1 CAPMAAS_FIGURES=$$out $(GO_TEST) -count=1 -run 'TestFigures|TestIdle|TestMemory|TestWork' \
		./controllers ./controllers/maasmachine ./pkg/maas/inventory ./pkg/maas/lxd; sort "$$out"

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (default 20s; FUZZ=regexp, PKG=./pkg/maas).
	@FUZZTIME='$(or $(FUZZTIME),20s)' FUZZ='$(FUZZ)' PKG='$(PKG)' hack/fuzz.sh

.PHONY: e2e
e2e: tools-test tools-providers build ## Run the suites in the sandbox, and build the images for all processors.
	CAPMAAS_BUILT=1 CAPMAAS_IMAGES=full $(GO_TEST) -p $(TEST_JOBS) -count=1 -timeout 30m $(TEST_ARGS) ./e2e/... ./test/...
	$(MAKE) conformance-capi

.PHONY: real
real: check-disk tools-test tools-disk build ## Run the suites on real nodes, which takes root, LXD and mmdebstrap, and boot a VM.
	CAPMAAS_BUILT=1 CAPMAAS_REAL_NODES=1 $(GO_TEST) -p 1 -count=1 -v -timeout 150m $(TEST_ARGS) ./e2e/boot ./test/sandbox/realnode ./e2e/real ./test/demo

# Without CHAOS=full, and in CI, each suite does a bounded part of what it can.
CHAOS ?= full
SEED ?=
CHAOS_PACKAGES = $(if $(filter-out file,$(origin PKG)),$(PKG),./e2e/crash ./e2e/chaos/... ./e2e/upgrade ./e2e/hosts)

.PHONY: chaos
chaos: tools-test build ## Attack everything for an hour: the manager is killed, MAAS fails or is upgraded, people meddle (SEED=number of random faults, PKG=./e2e/chaos, CHAOS=short).
	CAPMAAS_CHAOS=$(CHAOS) CAPMAAS_CHAOS_SEED=$(SEED) $(GO_TEST) -count=1 -p 1 -v -timeout 180m $(TEST_ARGS) $(CHAOS_PACKAGES)

.PHONY: bench
bench: tools-test ## Measure what manager and initializer need, for the chart's resources (up to an hour; BENCH=Manager).
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchtime 1x -timeout 120m ./e2e/load

.PHONY: conformance
conformance: ## Run the conformance suite on a MAAS (MAAS_CONFORMANCE_URL, MAAS_CONFORMANCE_KEY).
	@if [[ -z $${MAAS_CONFORMANCE_URL:-} || -z $${MAAS_CONFORMANCE_KEY:-} ]]; then \
		echo "set MAAS_CONFORMANCE_URL and MAAS_CONFORMANCE_KEY in the environment" >&2; exit 1; \
	fi
	$(GO_TEST) -count=1 -v -timeout 60m $(TEST_ARGS) ./test/conformance/

# Cluster API's specs are in a module of their own: what only they need is not in the provider's.
CAPI_SPECS := e2e/upstream
FOCUS ?=
# A document whose table of results is brought up to date.
REPORT ?=
# The version that the sandbox's MAAS is; default: 3.6.
MAAS_VERSION ?=

.PHONY: test-specs
test-specs: tools-test
	cd $(CAPI_SPECS) && $(GO_TEST) -count=1 -timeout 20m $(TEST_ARGS) . -args -ginkgo.label-filter=quick -ginkgo.no-color

.PHONY: conformance-capi
conformance-capi: tools-test ## Run Cluster API's own end-to-end specs in the sandbox, or in a management cluster (CAPI_CONFORMANCE_KUBECONFIG, CAPI_CONFORMANCE_VARIABLES; FOCUS=regexp, MAAS_VERSION=4.0, REPORT=docs/conformance-capi.md).
	cd $(CAPI_SPECS) && CAPI_CONFORMANCE_REPORT='$(if $(REPORT),$(abspath $(REPORT)))' CAPI_CONFORMANCE_MAAS='$(MAAS_VERSION)' \
		$(GO_TEST) -count=1 -v -timeout 24h . -args -ginkgo.v -ginkgo.no-color -ginkgo.focus='$(FOCUS)'

##@ Documents

# Where docs-serve listens, on 127.0.0.1.
DOCS_PORT ?= 8000

.PHONY: docs
docs: ## Make a site of the documents, with search, in bin/site.
	@hack/site/build.sh
	@echo "$(BIN)/site/index.html"

.PHONY: docs-serve
docs-serve: docs ## Serve it on 127.0.0.1 (DOCS_PORT=8000); Ctrl-C ends it.
	@python3 -m http.server --bind 127.0.0.1 --directory $(BIN)/site $(DOCS_PORT)

.PHONY: docs-check
docs-check: ## Fail if a link in the documents leads nowhere, or a page is in no task of README.md.
	@hack/site/build.sh check

##@ Code

GENERATED := api $(CHART) clusterclass hack/crds/schema.yaml internal/reasons $(wildcard docs/*.md) docs/adr/README.md

.PHONY: generate
generate: tools-controller-gen ## Generate deepcopy, CRDs and RBAC from the Go markers, the chart's schema from its values, other distributions' ClusterClasses and docs/variables.md from the ClusterClass, docs/capmaasctl.md from the commands, docs/reasons.md from the reasons, and sections of documents.
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

.PHONY: vet
vet: ## Run go vet.
	go vet ./...

.PHONY: tools-test
tools-test:
	@$(call build-tools,$(TEST_TOOLS))

.PHONY: tools-rke2 tools-k3s
tools-rke2 tools-k3s:
	@$(call build-tools,$(@:tools-%=%-bootstrap) $(@:tools-%=%-control-plane))

# A provider that can't be downloaded is not tested, unless CAPMAAS_REQUIRE_PROVIDERS is 1.
.PHONY: tools-providers
tools-providers:
	@$(call build-tools,$(PROVIDER_TOOLS)) || [[ $${CAPMAAS_REQUIRE_PROVIDERS:-} != 1 ]]

# What runs on real nodes, and their operating system.
NODE_TOOLS := kubelet kubeadm kube-scheduler kube-proxy containerd containerd-shim-runc-v2 ctr cni-bridge cni-host-local cni-loopback cni-portmap coredns kube-vip \
	$(addprefix previous-,kubelet kubeadm kube-apiserver kube-controller-manager kube-scheduler kube-proxy)

.PHONY: check-node
check-node:
	@hack/tools/node/rootfs.sh check

.PHONY: tools-node
tools-node: check-node
	@$(call build-tools,$(NODE_TOOLS))
	@BIN=$(BIN) hack/tools/node/rootfs.sh

# The disk that virtual machines boot.
.PHONY: check-disk
check-disk: check-node
	@hack/tools/node/disk.sh check

.PHONY: tools-disk
tools-disk: tools-node
	@BIN=$(BIN) hack/tools/node/disk.sh

.PHONY: tools-controller-gen tools-golangci-lint tools-helm
tools-controller-gen tools-golangci-lint tools-helm:
	@$(call build-tools,$(@:tools-%=%))

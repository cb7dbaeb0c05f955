# SPDX-License-Identifier: Apache-2.0

# Suites beside `make test`: LXDs of other versions, attacks, real nodes, a real MAAS, Cluster API's own specs.

##@ Suites

# The version that the LXDs of tests play; default: their own. test-lxd-played tests those that differ.
LXD_PLAYED ?=
ifneq ($(LXD_PLAYED),)
export CAPMAAS_LXD_PLAYED := $(LXD_PLAYED)
endif
LXD_VERSIONS ?= 5.21.7 6.6 6.7 6.8 6.9

# What is closest to LXD, and all else whose tests run one.
LXD_PACKAGES := ./test/sandbox/lxd/... ./pkg/lxdnode ./pkg/lxdhost
LXD_USERS := $(LXD_PACKAGES) ./pkg/maas/lxd ./cmd/lxd-initializer ./cmd/capmaasctl ./controllers/lxdhost \
	./test/simulator
# Those tests of ./controllers that run one.
LXD_CONTROLLERS := LXDHost|Direct|ALost|LXDRefused|LXDCant|ADevice|AnIDThat|NoVMIsMade|NameServers|OurVM|AnLXD

.PHONY: test-lxd-played
test-lxd-played: tools-test build ## Run the tests with LXD, with each version that it plays (LXD_VERSIONS="6.6 6.9").
	@for version in $(LXD_VERSIONS); do \
		echo "LXD $$version"; export CAPMAAS_BUILT=1 CAPMAAS_LXD_PLAYED=$$version; \
		$(GO_TEST) -count=1 -p $(TEST_JOBS) -timeout 20m $(TEST_ARGS) $(call pkg,$(LXD_USERS)); \
		$(if $(call pkg,),,$(GO_TEST) -count=1 -timeout 20m -run '$(LXD_CONTROLLERS)' ./controllers); \
	done

# Where there is no second LXD it is not tested, unless CAPMAAS_REQUIRE_LXD is set.
.PHONY: test-lxd-second
test-lxd-second: ## Run the tests closest to LXD with Debian 13's LXD (root, Debian 12 or 13, amd64).
	@if $(lxd-second); then \
		CAPMAAS_LXD=$(BIN)/lxd-second/lxd $(GO_TEST) -count=1 -timeout 20m $(TEST_ARGS) $(call pkg,$(LXD_PACKAGES)); \
	elif [[ -n $${CAPMAAS_REQUIRE_LXD:-} ]]; then exit 1; fi

lxd-second = BIN=$(BIN) hack/tools/lxd-second.sh

.PHONY: lxd-second
lxd-second: ## Fetch that LXD into bin/lxd-second. With CAPMAAS_LXD=$PWD/bin/lxd-second/lxd every test uses it.
	@$(lxd-second)

# With FULL=1 also what takes minutes, and up to 6 GB. MODEL=text: only the searches that contain it.
FULL ?=
MODEL ?=

.PHONY: model
model: ## Explore the models of the protocol to the end (spin and gcc; FULL=1, MODEL=keep): model/README.md.
	@nice go run ./hack/model -only '$(MODEL)' $(if $(FULL),-full -jobs 1)

.PHONY: figures
figures: tools-test build ## Measure what machines cost, beside the allowed ranges of test/figures.
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	CAPMAAS_BUILT=1 CAPMAAS_FIGURES=$$out $(GO_TEST) -count=1 -run 'TestFigures|TestIdle|TestMemory|TestWork' \
		./controllers ./controllers/maasmachine ./internal/nodes ./pkg/maas/inventory ./pkg/maas/lxd; sort "$$out"

.PHONY: test-value
test-value: ## Tell what each test alone reaches and finds (PKG=./pkg/maas/record; VALUE_ARGS=-every=5: fewer mutants).
	@KUBEBUILDER_ASSETS='$(KUBEBUILDER_ASSETS)' go run ./hack/testvalue $(VALUE_ARGS) $(PKG)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (default 20s; FUZZ=regexp, PKG=./pkg/maas).
	@FUZZTIME='$(or $(FUZZTIME),20s)' FUZZ='$(FUZZ)' PKG='$(PKG)' hack/fuzz.sh

.PHONY: e2e
e2e: tools-test tools-providers build ## Run the suites in the sandbox, and build the images for all processors.
	CAPMAAS_BUILT=1 CAPMAAS_IMAGES=full \
		$(GO_TEST) -p $(TEST_JOBS) -count=1 -timeout 30m $(TEST_ARGS) ./e2e/... ./test/...
	$(MAKE) conformance-capi

.PHONY: real
real: check-disk tools-test tools-disk build ## Run the suites on real nodes (root, LXD and mmdebstrap), and boot a VM.
	CAPMAAS_BUILT=1 CAPMAAS_REAL_NODES=1 $(GO_TEST) -p 1 -count=1 -v -timeout 150m $(TEST_ARGS) \
		./e2e/boot ./test/sandbox/realnode ./e2e/real ./test/demo

# Without CHAOS=full, and in CI, each suite does a bounded part of what it can.
CHAOS ?= full
SEED ?=

.PHONY: chaos
chaos: tools-test build ## Attack everything for an hour (SEED=number of random faults, PKG=./e2e/chaos, CHAOS=short).
	@export CAPMAAS_CHAOS=$(CHAOS) CAPMAAS_CHAOS_SEED=$(SEED); \
		$(if $(call pkg,),,$(GO_TEST) -count=1 -v -timeout 180m -run TestAViewThatLies ./controllers;) \
		$(GO_TEST) -count=1 -p 1 -v -timeout 180m $(TEST_ARGS) \
		$(call pkg,./e2e/crash ./e2e/chaos/... ./e2e/upgrade ./e2e/hosts)

.PHONY: bench
bench: tools-test ## Measure what manager and initializer need (up to an hour; BENCH=Manager).
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
# In a management cluster: CAPI_CONFORMANCE_KUBECONFIG, CAPI_CONFORMANCE_VARIABLES.
conformance-capi: tools-test ## Run Cluster API's own end-to-end specs (FOCUS=regexp, MAAS_VERSION=4.0, REPORT=FILE).
	cd $(CAPI_SPECS) && CAPI_CONFORMANCE_REPORT='$(if $(REPORT),$(abspath $(REPORT)))' \
		CAPI_CONFORMANCE_MAAS='$(MAAS_VERSION)' \
		$(GO_TEST) -count=1 -v -timeout 24h . -args -ginkgo.v -ginkgo.no-color -ginkgo.focus='$(FOCUS)'


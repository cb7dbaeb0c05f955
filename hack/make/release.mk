# SPDX-License-Identifier: Apache-2.0

# Images, manifests and releases.

##@ Release

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
# Also IMAGE_ARCH="amd64 arm64", GOFIPS140=v1.0.0.
docker-build: ## Build the images with docker or buildah (REGISTRY and TAG, or IMG and INITIALIZER_IMG).
	@$(images) build

.PHONY: docker-push
docker-push: ## Push the images (as docker-build).
	@$(images) push

.PHONY: manifests
manifests: ## Write a clusterctl repository, and lxd-initializer-daemonset.yaml, to OUT, for VERSION and the images.
	go run ./hack/manifests --out $(OUT) --version $(VERSION) --image $(IMG) \
		--initializer-image '$(INITIALIZER_MANIFEST_IMG)'

RELEASE_ARCHS ?= amd64 arm64
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
# With SIGN=1, cosign signs: with COSIGN_KEY (a file, or a key in a KMS), or without one as the workflow that runs.
SIGN ?=
COSIGN_KEY ?=
# Which of Sigstore's services take part, if not the public ones.
COSIGN_SIGNING_CONFIG ?=

.PHONY: release
release: IMAGE_ARCH = $(RELEASE_ARCHS)
release: ## Make a release in OUT/release, and push images and chart to REGISTRY (VERSION, SIGN=1, COSIGN_KEY=FILE).
	@if [[ -z '$(REGISTRY)' ]]; then \
		echo "say where the images and the chart go: REGISTRY=ghcr.io/capmaas" >&2; exit 1; fi
	@$(call build-tools,cyclonedx-gomod $(if $(SIGN),cosign))
	@$(images) build
	@$(images) push
	go run ./hack/release --out '$(OUT)/release' --version '$(VERSION)' --registry '$(REGISTRY)' \
		--image-manager '$(IMG)' --image-lxd-initializer '$(INITIALIZER_IMG)' --image-context '$(IMAGE_CONTEXT)' \
		--archs '$(IMAGE_ARCH)' --platforms '$(RELEASE_PLATFORMS)' --ldflags '$(GO_LDFLAGS)' \
		--cyclonedx-gomod $(BIN)/cyclonedx-gomod \
		$(if $(SIGN),--cosign $(BIN)/cosign --cosign-key '$(COSIGN_KEY)' --cosign-signing-config '$(COSIGN_SIGNING_CONFIG)')

.PHONY: tools-release
tools-release:
	@$(call build-tools,capi-operator cosign cyclonedx-gomod krew)

.PHONY: release-dry-run
# RELEASE_ARCHS and RELEASE_PLATFORMS choose a part.
release-dry-run: tools-test tools-release lint-workflows ## Make a release, publish it here, and install and verify it.
	CAPMAAS_RELEASE=1 RELEASE_ARCHS='$(RELEASE_ARCHS)' RELEASE_PLATFORMS='$(RELEASE_PLATFORMS)' \
		$(GO_TEST) -count=1 -v -timeout 90m $(TEST_ARGS) ./e2e/release

.PHONY: lint-workflows
lint-workflows: ## Check the workflows of GitHub with actionlint.
	@$(call build-tools,actionlint)
	$(BIN)/actionlint

.PHONY: tools-pins
tools-pins: ## Look up the checksums of the tools' official releases, and write hack/tools/releases.
	hack/tools/build.sh versions | go run ./hack/fetch --pin --mirror '$(TOOLS_MIRROR)'


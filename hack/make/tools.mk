# SPDX-License-Identifier: Apache-2.0

# Tools that are built into bin/ when a target needs them.

.PHONY: tools-test
tools-test:
	@$(call build-tools,$(TEST_TOOLS))

.PHONY: tools-rke2 tools-k3s
tools-rke2 tools-k3s:
	@$(call build-tools,$(@:tools-%=%-bootstrap) $(@:tools-%=%-control-plane))

.PHONY: tools-dev
tools-dev:
	@$(call build-tools,dev)

# A provider that can't be downloaded is not tested, unless CAPMAAS_REQUIRE_PROVIDERS is 1.
.PHONY: tools-providers
tools-providers:
	@$(call build-tools,$(PROVIDER_TOOLS)) || [[ $${CAPMAAS_REQUIRE_PROVIDERS:-} != 1 ]]

# What runs on real nodes, and their operating system.
NODE_TOOLS := kubelet kubeadm kube-scheduler kube-proxy containerd containerd-shim-runc-v2 ctr coredns kube-vip \
	cni-bridge cni-host-local cni-loopback cni-portmap \
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

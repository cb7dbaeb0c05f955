# SPDX-License-Identifier: Apache-2.0

# The images: each a static binary and the CA roots, nothing else.
# `make docker-build` fills the build context; it is not the repository. The context holds what the target copies.
FROM scratch AS base

ARG VERSION
LABEL org.opencontainers.image.source="https://github.com/capmaas/cluster-api-provider-maas" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"

COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt

FROM base AS lxd-initializer

LABEL org.opencontainers.image.title="LXD initializer of Cluster API Provider MAAS" \
      org.opencontainers.image.description="Prepares the LXD of a Kubernetes node and registers the node in MAAS as an LXD VM host"

COPY lxd-initializer /lxd-initializer

# LXD's socket is root's.
USER 0:0
ENTRYPOINT ["/lxd-initializer"]

FROM base AS manager

LABEL org.opencontainers.image.title="Cluster API Provider MAAS" \
      org.opencontainers.image.description="Cluster API infrastructure provider for MAAS"

COPY manager /manager

USER 65532:65532
ENTRYPOINT ["/manager"]

# SPDX-License-Identifier: Apache-2.0

# The images: each a static binary and the CA roots, nothing else.
# `make docker-build` lays out what is in them, one directory for each: the build context is not the repository.
# It gives the labels that change, too: the version, the revision, and when the image was made.
FROM scratch AS lxd-initializer

LABEL org.opencontainers.image.title="LXD initializer of Cluster API Provider MAAS" \
      org.opencontainers.image.description="Prepares the LXD of a Kubernetes node and registers the node in MAAS as an LXD VM host" \
      org.opencontainers.image.source="https://github.com/capmaas/cluster-api-provider-maas" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY lxd-initializer/ /

# LXD's socket is root's.
USER 0:0
ENTRYPOINT ["/lxd-initializer"]

FROM scratch AS manager

LABEL org.opencontainers.image.title="Cluster API Provider MAAS" \
      org.opencontainers.image.description="Cluster API infrastructure provider for MAAS" \
      org.opencontainers.image.source="https://github.com/capmaas/cluster-api-provider-maas" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY manager/ /

USER 65532:65532
ENTRYPOINT ["/manager"]

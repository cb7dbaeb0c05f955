# SPDX-License-Identifier: Apache-2.0

# The manager's image: a static binary and the CA roots, nothing else.
# `make docker-build` fills the build context; it is not the repository.
FROM scratch

ARG VERSION
LABEL org.opencontainers.image.title="Cluster API Provider MAAS" \
      org.opencontainers.image.description="Cluster API infrastructure provider for MAAS" \
      org.opencontainers.image.source="https://github.com/capmaas/cluster-api-provider-maas" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"

COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY manager /manager

USER 65532:65532
ENTRYPOINT ["/manager"]

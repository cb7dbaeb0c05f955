#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs or upgrades the chart. Values of an earlier deploy stay unless given anew.
#
# usage: IMG=IMAGE INITIALIZER_IMG=IMAGE [MAAS_ENDPOINT=URL] [MAAS_API_KEY=KEY | MAAS_SECRET=NAME] hack/deploy.sh
#        HELM RELEASE CHART NAMESPACE [HELM ARGUMENT...]
set -euo pipefail

helm=$1 release=$2 chart=$3 namespace=$4
shift 4
values=(
  --set-string "image.repository=${IMG%:*}" --set-string "image.tag=${IMG##*:}"
  --set-string "lxdInitializer.image.repository=${INITIALIZER_IMG%:*}"
  --set-string "lxdInitializer.image.tag=${INITIALIZER_IMG##*:}"
)
if [[ -n ${MAAS_ENDPOINT:-} ]]; then values+=(--set-string "maas.endpoint=$MAAS_ENDPOINT"); fi
if [[ -n ${MAAS_SECRET:-} ]]; then values+=(--set-string "maas.existingSecret=$MAAS_SECRET"); fi
# The key goes to helm through a file descriptor: command lines are public.
if [[ -n ${MAAS_API_KEY:-} ]]; then
  exec 3< <(printf %s "$MAAS_API_KEY")
  values+=(--set-file maas.apiKey=/dev/fd/3)
fi
unset MAAS_API_KEY
exec "$helm" upgrade --install "$release" "$chart" --namespace "$namespace" --create-namespace \
  --reset-then-reuse-values --wait --timeout 5m "${values[@]}" "$@"

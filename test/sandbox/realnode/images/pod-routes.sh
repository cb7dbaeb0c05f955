#!/bin/sh
# Routes to the pods of other nodes, through those nodes: all machines are in one layer-2 network.
set -eu
iptables -t nat -C POSTROUTING -s "$POD_CIDR" ! -d "$POD_CIDR" -j MASQUERADE 2>/dev/null ||
  iptables -t nat -A POSTROUTING -s "$POD_CIDR" ! -d "$POD_CIDR" -j MASQUERADE
template='{.metadata.name} {.spec.podCIDR} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}'
while true; do
  kubectl get nodes --watch --output "jsonpath=$template" | while read -r node subnet address; do
    if [ "$node" = "$NODE" ] || [ -z "$address" ]; then continue; fi
    echo "$node: $subnet via $address"
    ip route replace "$subnet" via "$address"
  done
  sleep 1 # The watch ended, or there is no way to the API server yet.
done

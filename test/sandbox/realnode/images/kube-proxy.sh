#!/bin/sh
# In a network namespace that is not the kernel's first, the size of the table of connections can't be written, even
# to what it is. kube-proxy insists on writing it: it may write to a file instead.
set -eu
cp /proc/sys/net/netfilter/nf_conntrack_max /run/nf_conntrack_max
mount -o bind /run/nf_conntrack_max /proc/sys/net/netfilter/nf_conntrack_max
exec /usr/local/lib/kube-proxy "$@"

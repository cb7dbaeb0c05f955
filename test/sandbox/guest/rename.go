// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rename is a new name of a node, and the channel for its host's result.
type rename struct {
	name string
	done chan error
}

var errNotRenamed = errors.New("the node can't be renamed")

// RenameNode acts like an operator who changes the hostname-override and the provider-id of a worker's kubelet: the
// kubelet stops, its Node is deleted, and it starts again and registers another one. RenameNode returns when that one
// is up. It waits for a machine that is powered off.
func (g *Guests) RenameNode(ctx context.Context, systemID, name string) error {
	g.mutex.Lock()
	h := g.hosts[systemID]
	g.mutex.Unlock()
	if h == nil || h.joined() == nil || h.joined().controlPlane {
		return fmt.Errorf("machine %s is no worker: %w", systemID, errNotRenamed) // a control plane's pods and etcd member have its name
	}
	r := rename{name: name, done: make(chan error, 1)}
	for renames := h.renames; ; {
		select {
		case renames <- r:
			renames = nil
		case err := <-r.done:
			return err
		case <-ctx.Done():
			return fmt.Errorf("renaming the node of machine %s: %w", systemID, context.Cause(ctx))
		}
	}
}

// rename deletes a member's Node, and with it the pods on it.
func (c *cluster) rename(m *member, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.node}}
	if err := c.objects.Get(noContext, client.ObjectKeyFromObject(node), node); err != nil {
		return fmt.Errorf("reading the node %s: %w", m.node, err)
	}
	if err := c.objects.Delete(noContext, node); err != nil {
		return fmt.Errorf("deleting the node %s: %w", m.node, err)
	}
	c.collect()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.members, m.node)
	m.node = name
	c.members[name] = m
	if m.registration.KubeletExtraArgs == nil {
		m.registration.KubeletExtraArgs = kubeletArgs{}
	}
	m.registration.KubeletExtraArgs["provider-id"] = node.Spec.ProviderID
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// namesTimeout is how long a shell waits for names.
const namesTimeout = 5 * time.Second

// completeWords gives the shell what may stand in the command line: formats, files, names of objects, or nothing that
// it could know.
func (p *program) completeWords(c *cobra.Command, d command) {
	switch {
	case d.names != nil:
		c.ValidArgsFunction = func(c *cobra.Command, operands []string, begun string) ([]string, cobra.ShellCompDirective) {
			words, object := d.names(operands)
			if object != nil {
				words = p.names(c, object, begun)
			}
			begins := func(word string) bool { return strings.HasPrefix(word, begun) }
			return list.Where(words, begins), cobra.ShellCompDirectiveNoFileComp
		}
	case !strings.Contains(d.use, "FILE"):
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	flags := map[string]cobra.CompletionFunc{
		"output": cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp),
		"namespace": func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return p.names(c, &corev1.Namespace{}, ""), cobra.ShellCompDirectiveNoFileComp
		},
	}
	for name, complete := range flags {
		if c.Flags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, complete) // The flag is there.
		}
	}
}

// names returns the names of the objects of a kind, in the namespace that the command line names, or as NAMESPACE/NAME
// if that is how it was begun. Without a management cluster that responds there are none.
func (p *program) names(c *cobra.Command, object client.Object, begun string) []string {
	o := &p.doers[c].options
	reader, namespace, err := o.managementCluster(p.surroundings)
	if err != nil {
		return nil
	}
	of, err := reader.GroupVersionKindFor(object)
	if err != nil {
		return nil
	}
	within, prefix := client.InNamespace(namespace), ""
	if o.namespace != "" {
		within = client.InNamespace(o.namespace)
	}
	if named, _, is := strings.Cut(begun, "/"); is {
		within, prefix = client.InNamespace(named), named+"/"
	}
	if _, is := object.(*corev1.Namespace); is {
		within, prefix = "", ""
	}
	ctx, cancel := context.WithTimeout(c.Context(), namesTimeout)
	defer cancel()
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
	if err := reader.List(ctx, all, within); err != nil {
		return nil
	}
	return list.Each(all.Items, func(one metav1.PartialObjectMetadata) string { return prefix + one.Name })
}

// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Granted are the rights of a ServiceAccount in a cluster, by all roles that are bound to it by name. What everybody
// has is not among them.
func Granted(ctx context.Context, c client.Reader, account client.ObjectKey, served []*metav1.APIResourceList) ([]Right, error) {
	bindings, clusterBindings := &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}
	for _, list := range []client.ObjectList{bindings, clusterBindings} {
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing who is granted what: %w", err)
		}
	}
	isOurs := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == account.Namespace && s.Name == account.Name
	}
	var rights []Right
	for _, b := range clusterBindings.Items {
		if !slices.ContainsFunc(b.Subjects, isOurs) {
			continue
		}
		rules, err := rulesOf(ctx, c, b.RoleRef, "")
		if err != nil {
			return nil, err
		}
		rights = append(rights, Expand(rules, "", served)...)
	}
	for _, b := range bindings.Items {
		if !slices.ContainsFunc(b.Subjects, isOurs) {
			continue
		}
		rules, err := rulesOf(ctx, c, b.RoleRef, b.Namespace)
		if err != nil {
			return nil, err
		}
		rights = append(rights, Expand(rules, b.Namespace, served)...)
	}
	return rights, nil
}

func rulesOf(ctx context.Context, c client.Reader, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "ClusterRole" {
		role := &rbacv1.ClusterRole{}
		if err := c.Get(ctx, client.ObjectKey{Name: ref.Name}, role); err != nil {
			return nil, fmt.Errorf("reading the ClusterRole %s: %w", ref.Name, err)
		}
		return role.Rules, nil
	}
	role := &rbacv1.Role{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, role); err != nil {
		return nil, fmt.Errorf("reading the Role %s in %s: %w", ref.Name, namespace, err)
	}
	return role.Rules, nil
}

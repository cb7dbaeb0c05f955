#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# After Cluster API's patch helper, client.IgnoreNotFound ignores nothing.
#
# Software: sigs.k8s.io/cluster-api v1.14.2, util/patch, with the client of sigs.k8s.io/controller-runtime v0.24.1.
# Expected: Patch of an object that was deleted meanwhile returns an error that apierrors.IsNotFound knows, as the
#   client itself does, so that client.IgnoreNotFound(helper.Patch(...)) is quiet at the end of a reconcile.
# Seen: the helper gathers its errors in an Aggregate, which errors.As does not look into. IsNotFound is false, whether
#   conditions, the rest of the status, or metadata have changed, and IgnoreNotFound returns the error. Taken out of the
#   Aggregate, each error is a NotFound.
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.com/gone

go 1.25
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func main() {
	ctx, scheme := context.Background(), runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	for _, change := range []struct {
		what string
		do   func(*clusterv1.Machine)
	}{
		{"a condition", func(m *clusterv1.Machine) {
			conditions.Set(m, metav1.Condition{Type: "Checked", Status: metav1.ConditionTrue, Reason: "Checked"})
		}},
		{"the status", func(m *clusterv1.Machine) { m.Status.Phase = "Running" }},
		{"a label", func(m *clusterv1.Machine) { m.Labels = map[string]string{"a": "b"} }},
	} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine).WithStatusSubresource(machine).Build()
		if err := c.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
			panic(err)
		}
		helper, err := patch.NewHelper(machine, c)
		if err != nil {
			panic(err)
		}
		if err := c.Delete(ctx, machine.DeepCopy()); err != nil {
			panic(err)
		}
		change.do(machine)
		err = helper.Patch(ctx, machine)
		var all kerrors.Aggregate
		inside := errors.As(err, &all) && apierrors.IsNotFound(all.Errors()[0])
		fmt.Printf("%s: IsNotFound %v, ignored %v; inside the Aggregate: IsNotFound %v\n", change.what,
			apierrors.IsNotFound(err), client.IgnoreNotFound(err) == nil, inside)
	}
}
GO
export GOFLAGS=-mod=mod GOWORK=off
go get sigs.k8s.io/cluster-api@v1.14.2 sigs.k8s.io/cluster-api/api@v1.14.2 sigs.k8s.io/controller-runtime@v0.24.1 2>/dev/null
go mod tidy 2>/dev/null
go run . >seen
cat seen
diff - seen <<'WANT'
a condition: IsNotFound false, ignored false; inside the Aggregate: IsNotFound true
the status: IsNotFound false, ignored false; inside the Aggregate: IsNotFound true
a label: IsNotFound false, ignored false; inside the Aggregate: IsNotFound true
WANT

// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// server is a machine to be kept whose MaasMachine has all that it may have.
func server(number int) KeptMachine {
	spec := infrav1.MaasMachineSpec{Image: "ubuntu/jammy"}
	for i := range 32 {
		spec.Tags = append(spec.Tags, fmt.Sprintf("%02d%s", i, strings.Repeat("t", 198)))
	}
	return KeptMachine{
		SystemID: fmt.Sprintf("id%d", number), Hostname: fmt.Sprintf("server-%d", number), For: "machinedeployment/md", Machine: fmt.Sprintf("md-%d", number),
		Labels:      map[string]string{"cluster.x-k8s.io/cluster-name": "c", "other": strings.Repeat("l", 60)},
		Annotations: map[string]string{infrav1.InterfacesAnnotation: strings.Repeat("i", 4000), "other": strings.Repeat("a", 100<<10)},
		Spec:        spec,
	}
}

// However many machines are to be kept, Kubernetes takes the record, beside what others have written, and there is room to give
// them back.
func TestARecordIsFullBeforeKubernetesSaysSo(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "beside others": 100 << 10} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, interceptor.Funcs{})
			r, m := b.openCluster()
			m.Annotations = map[string]string{"other": strings.Repeat("x", others)}
			b.must(r.Write(t.Context(), func(o client.Object) { o.SetAnnotations(m.Annotations) }))
			kept := 0
			for i := range 60 {
				added, err := r.Add(t.Context(), func(k *KeptMachines) bool { return k.Keep(server(i), time.Now(), time.Hour) })
				if err != nil {
					t.Fatal(err)
				}
				if added {
					kept++
				}
			}
			data, now := b.openCluster()
			if len(data.Kept) != kept || kept == 0 || kept == 60 {
				t.Errorf("%d are kept, %d were accepted", len(data.Kept), kept)
			}
			now.Annotations["giving back"] = strings.Repeat("x", 64<<10)
			if errs := apivalidation.ValidateAnnotations(map[string]string{"a/b": strings.Repeat("x", sizeOf(now.Annotations))}, field.NewPath("x")); len(errs) > 0 {
				t.Errorf("no room: %v", errs.ToAggregate())
			}
		})
	}
}

// What is said of entries later takes no more room than there is.
func TestTheTextsOfEntriesAreBounded(t *testing.T) {
	long := strings.Repeat("w", 100<<10)
	var d HostData
	for i := range maxLeft {
		vm := LeftVM{Hostname: fmt.Sprintf("%063d", i), OwnerID: strings.Repeat("o", 13), Namespace: strings.Repeat("n", 63), Machine: strings.Repeat("m", 253), Host: "lxdhost:a/b"}
		d.Left.Leave(vm, time.Now())
		d.Left.Spare(vm, long, false)
		if !d.Left[i].IsSpared(long, false) || d.Left[i].IsSpared("another", false) {
			t.Fatal("it is not known why it is kept")
		}
	}
	var c ClusterData
	for i := range maxKept {
		c.Kept.Keep(KeptMachine{SystemID: fmt.Sprint(i)}, time.Now(), time.Hour)
		(&Machine{kept: &c.Kept[i]}).Explain("Reason", long)
	}
	if size := max(len(write(d)), len(write(c))); size > apivalidation.TotalAnnotationSizeLimitB {
		t.Errorf("the record has %d bytes", size)
	}
}

// An object that was deleted, and made anew, has no part in what is recorded of the earlier one.
func TestNothingIsRecordedOnALaterObjectOfTheName(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	r, m := b.open()
	b.must(b.client.Delete(t.Context(), m.DeepCopy()))
	anew := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: "another"}}
	b.must(b.client.Create(t.Context(), anew))
	for what, write := range map[string]func() error{
		"stored": func() error { return r.Store(t.Context(), func() { r.Excluded = "abc" }) },
		"closed": func() error { r.Excluded = "abc"; return r.Close(t.Context()) },
	} {
		if err := write(); !apierrors.IsNotFound(err) || len(b.now().Annotations) > 0 {
			t.Errorf("%s: %v; the later one has %v", what, err, b.now().Annotations)
		}
	}
}

// What Kubernetes refuses is not added. What it can't do now is an error.
func TestWhatKubernetesRefusesIsNotAdded(t *testing.T) {
	kind, resource := schema.GroupKind{Kind: "MaasMachine"}, schema.GroupResource{Resource: "maasmachines"}
	for name, tc := range map[string]struct {
		answer error
		fails  bool
	}{
		"too long":       {answer: apierrors.NewInvalid(kind, "m", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 1)})},
		"too large":      {answer: apierrors.NewRequestEntityTooLargeError("too large")},
		"a policy":       {answer: apierrors.NewForbidden(resource, "m", nil)},
		"not now":        {answer: apierrors.NewInternalError(context.DeadlineExceeded), fails: true},
		"not understood": {answer: apierrors.NewTimeoutError("later", 1), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return tc.answer
			}})
			r, _ := b.openCluster()
			added, err := r.Add(t.Context(), func(k *KeptMachines) bool { return k.Keep(server(1), time.Now(), time.Hour) })
			if added || (err != nil) != tc.fails || len(r.Kept) != 0 {
				t.Errorf("added: %v, %v, %d in the record", added, err, len(r.Kept))
			}
		})
	}
}

// The record of giving a machine back is an entry of its MaasCluster's, which others may change meanwhile.
func TestGivingBackIsRecordedWhereTheMachineIsKept(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	whole, _ := b.openCluster()
	for i := range 2 {
		one := server(i)
		one.Storage = &StorageLayout{SystemID: one.SystemID}
		if added, err := whole.Add(t.Context(), func(k *KeptMachines) bool { return k.Keep(one, time.Now(), time.Hour) }); err != nil || !added {
			t.Fatal(added, err)
		}
	}
	other, _ := b.openCluster()
	whole, _ = b.openCluster()
	giving, err := whole.Giving("id1")
	if err != nil || giving.StorageOn("id1") == nil {
		t.Fatal(giving, err)
	}
	b.must(other.Store(t.Context(), func() { other.GaveBack("id0") }))
	if err := giving.Store(t.Context(), func() { giving.Excluded = "id1" }); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict: others have changed the record", err)
	}
	whole, _ = b.openCluster()
	giving, err = whole.Giving("id1")
	b.must(err)
	b.must(giving.Store(t.Context(), func() { giving.Excluded = "id1" }))
	whole, _ = b.openCluster()
	giving, err = whole.Giving("id1")
	if err != nil || giving.Excluded != "id1" || len(whole.Kept) != 1 {
		t.Errorf("%+v, %v; kept: %d", giving.MachineData, err, len(whole.Kept))
	}
	other, _ = b.openCluster()
	b.must(other.Store(t.Context(), func() { other.GaveBack("id1") }))
	if err := giving.Store(t.Context(), func() { giving.Enter("releasing", time.Now()) }); err == nil {
		t.Error("what is not kept any more is given back")
	}
	if _, err := other.Giving("id1"); err == nil {
		t.Error("what is not kept any more has a record")
	}
}

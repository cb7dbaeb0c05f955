// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
)

// The cache may still have a MaasCluster as it was before it was provisioned. The event is sent once, and again for another
// MaasCluster of that name.
func TestProvisionedIsToldOnce(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Base: reconciler.Base{Recorder: recorder}}
	for i, uid := range []string{"a", "a", "b", "a"} {
		read := &infrav1.MaasCluster{}
		read.Name, read.UID = "c1", types.UID(uid)
		r.provisioned(read)
		if !ptr.Deref(read.Status.Initialization.Provisioned, false) {
			t.Errorf("read %d is not provisioned", i)
		}
	}
	if got := len(recorder.Events); got != 2 {
		t.Errorf("%d events, want one for each of two objects", got)
	}
}

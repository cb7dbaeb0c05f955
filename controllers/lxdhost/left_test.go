// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// What was left on an LXDHost that is being deleted keeps it as long as its name, or its address, is not free.
func TestWhatWasLeftKeepsTheLXDHost(t *testing.T) {
	t.Parallel()
	deleting := []record.Pending{{Op: record.DeleteVM, At: metav1.Now()}}
	for name, tc := range map[string]struct {
		left    record.LeftVM
		pending []record.Pending
		keeps   bool
	}{
		"with a device":         {record.LeftVM{Device: "abc"}, nil, true},
		"a person decides":      {record.LeftVM{Device: "abc", Spared: "why"}, nil, false},
		"without a device":      {record.LeftVM{}, nil, false},
		"it may be deleted":     {record.LeftVM{}, deleting, true},
		"spared, while another": {record.LeftVM{Device: "abc", Spared: "why"}, deleting, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.left.Hostname = "vm"
			text, err := json.Marshal(record.HostData{Calls: record.Calls{Pending: tc.pending}, Left: record.LeftVMs{tc.left}})
			if err != nil {
				t.Fatal(err)
			}
			host := directHost(nil)
			host.Annotations = map[string]string{infrav1.RecordAnnotation: string(text)}
			r := reconcilerOf(t, host)
			r.Records = &record.Records{Client: r.Client, SettleTime: time.Hour}
			if got := r.leftOn(host); (len(got) > 0) != tc.keeps {
				t.Errorf("it is kept by %v", got)
			}
		})
	}
}

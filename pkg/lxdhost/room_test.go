// SPDX-License-Identifier: Apache-2.0

package lxdhost

import "testing"

// 115 % of 100 is 115, though the ratio has no exact float.
func TestPromised(t *testing.T) {
	for _, tc := range []struct {
		there int64
		ratio float64
		want  int64
	}{{100, 1.15, 115}, {100, 0, 100}, {3, 1.5, 4}, {65536, 2.3, 150732}, {7, 0.5, 3}, {0, 2, 0}, {1 << 62, 0, 1 << 62}} {
		if got := promised(tc.there, tc.ratio); got != tc.want {
			t.Errorf("of %d with the ratio %g may be promised %d, want %d", tc.there, tc.ratio, got, tc.want)
		}
	}
}

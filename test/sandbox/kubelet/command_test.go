// SPDX-License-Identifier: Apache-2.0

package kubelet

import "testing"

func TestRewritePorts(t *testing.T) {
	ports := map[int32]int32{8080: 31000}
	for value, want := range map[string]string{
		":8080":                   "127.0.0.1:31000",
		"--addr=:8080":            "--addr=127.0.0.1:31000",
		"--addr=127.0.0.1:8080":   "--addr=127.0.0.1:31000",
		"[::]:8080":               "[::]:31000",
		":9090":                   ":9090",
		"http://10.0.0.1:8080":    "http://10.0.0.1:8080",
		"the port is 8080":        "the port is 8080",
		"--addr=127.0.0.1:80800":  "--addr=127.0.0.1:80800",
		"127.0.0.1:8080/and/more": "127.0.0.1:8080/and/more",
	} {
		if got := rewritePorts(value, ports); got != want {
			t.Errorf("rewritePorts(%q) = %q, want %q", value, got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestStartWithoutAssets(t *testing.T) {
	_, err := Start(t.Context(), Options{Assets: t.TempDir(), Dir: t.TempDir(), LogDir: t.TempDir()})
	if !errors.Is(err, ErrNoAssets) {
		t.Fatalf("Start = %v, want %v", err, ErrNoAssets)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	if os.Getenv(AssetsVariable) == "" {
		t.Fatalf("%s is not set; `make test` sets it", AssetsVariable)
	}
	c, err := Start(t.Context(), Options{Dir: t.TempDir(), LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	client := kubernetes.NewForConfigOrDie(c.RESTConfig())
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("reading a namespace: %v", err)
	}
	pids := c.PIDs()
	if len(pids) != 3 {
		t.Errorf("%d processes, want 3", len(pids))
	}
	host, err := url.Parse(c.Host())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there (%v)", pid, err)
		}
	}
	if connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host.Host); err == nil {
		_ = connection.Close()
		t.Errorf("%s still listens", host.Host)
	}
}

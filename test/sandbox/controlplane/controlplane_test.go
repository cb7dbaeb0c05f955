// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

func TestWhatIsStoredSurvivesTheAPIServer(t *testing.T) {
	c, err := Start(t.Context(), Options{Dir: t.TempDir(), LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	core := kubernetes.NewForConfigOrDie(c.RESTConfig()).CoreV1()
	namespaces := core.Namespaces()
	// kube-controller-manager survives without an API server only once its controllers run. Then there is a default
	// ServiceAccount.
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := core.ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := namespaces.Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Get(t.Context(), "default", metav1.GetOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("reading a namespace: %v, want %v", err, syscall.ECONNREFUSED)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := namespaces.Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || again.UID != stored.UID {
		t.Errorf("the namespace is %v (%v), was %v", again.UID, err, stored.UID)
	}
	for _, pid := range c.PIDs() {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}

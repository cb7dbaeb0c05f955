// SPDX-License-Identifier: Apache-2.0

package clusterctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// holdDeploy delays MAAS's response to deploy until release; reached is closed when deploy was called.
func (s *story) holdDeploy() (reached <-chan struct{}, release func()) {
	s.Helper()
	asked, held := make(chan struct{}), make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	west.MAAS.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Op == "deploy" && phase == simulator.Before {
			ask()
			<-held
		}
		return nil
	})
	release = sync.OnceFunc(func() {
		west.MAAS.SetHook(nil)
		close(held)
	})
	s.Cleanup(release)
	return asked, release
}

func (s *story) await(what string, done <-chan struct{}) {
	s.Helper()
	s.Wait(what, func() (bool, string, error) {
		select {
		case <-done:
			return true, "", nil
		default:
			return false, "not yet", nil
		}
	})
}

// refused: while a machine comes, clusterctl does not begin, and nothing was changed.
func (s *story) refused() {
	s.Helper()
	s.shell.Run(s.T, "label")
	out, says, err := s.shell.Try(s.T, "move")
	if err == nil || !strings.Contains(says, "still provisioning the node") {
		s.Fatalf("clusterctl moves while a machine comes: %s", outcome(out, says, err))
	}
	for name, paused := range pausedIn(s.T, west) {
		if paused {
			s.Errorf("%s was paused", name)
		}
	}
	s.nothingIn(east)
}

// heldUp: a machine appears after clusterctl has read the objects, and before it has paused the clusters. The move must
// not lose it.
func (s *story) heldUp() {
	reached, release := s.holdDeploy()
	looked, pause := make(chan struct{}), make(chan struct{})
	front := frontOf(s.T, west, sync.OnceFunc(func() {
		close(looked)
		<-pause
	}))
	goOn := sync.OnceFunc(func() { close(pause) })
	s.Cleanup(goOn)
	ctx, cancel := context.WithTimeout(s.Context(), document.StepTimeout)
	defer cancel()
	var says output
	command := s.shell.Command(ctx, s.T, "move", "WEST="+front)
	command.Stderr = &says
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		s.Fatal(err)
	}
	s.await("clusterctl to have looked", looked)
	s.ScaleWorkers(2)
	s.await("a machine to come", reached)
	goOn()
	s.Wait("the move to be held up", func() (bool, string, error) {
		return strings.Contains(says.String(), "Move blocked by"), says.String(), nil
	})
	release()
	s.Wait("an event to tell of it", func() (bool, string, error) {
		list := &corev1.EventList{}
		err := west.Client.List(s.Context(), list, client.InNamespace(life.Namespace))
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == "MoveBlocked" }), "none", err
	})
	// The operator gives up, as clusterctl would do after some minutes.
	if err := syscall.Kill(-command.Process.Pid, syscall.SIGINT); err != nil {
		s.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		s.Fatalf("clusterctl has moved it all the same: %s", says.String())
	}
	s.nothingIn(east)
	s.shell.Run(s.T, "unpause")
	s.Available(controlPlanes + 2)
}

// output is written by one goroutine, and read by another.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}

// frontOf is a kubeconfig of a management cluster where something happens right before the first Cluster is paused.
func frontOf(t *testing.T, box *sandbox.Sandbox, before func()) (kubeconfig string) {
	t.Helper()
	target, err := url.Parse(box.RESTConfig.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(box.RESTConfig)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/clusters/") {
			before()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\nusers: [{name: a, user: {}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// move moves both clusters to the east. There, everything is found again; the only change in MAAS is that the machines
// are marked again.
func (s *story) move() {
	before, calls, held := west.MAAS.State(), west.MAAS.Calls().Total, s.held()
	s.shell.Run(s.T, "move")
	s.Box = east
	s.shell.Run(s.T, "moved")
	s.Available(controlPlanes + 2)
	s.ownAvailable()
	s.asBefore(before, calls, held)
	s.nothingIn(west)
}

// held returns the machines of MaasMachines, with the other facts that must be found again.
func (s *story) held() map[string]string {
	s.Helper()
	list := &infrav1.MaasMachineList{}
	if err := s.Box.Client.List(s.Context(), list, client.InNamespace(life.Namespace)); err != nil {
		s.Fatal(err)
	}
	machines := map[string]string{}
	for _, m := range list.Items {
		status, err := json.Marshal(map[string]any{
			"addresses": m.Status.Addresses, "zone": m.Status.FailureDomain, "host": m.Status.LXDHost, "state": m.Status.MachineState, "powered": m.Status.MachinePowered,
			"staticIP": m.Status.StaticIP, "hostname": m.Status.Hostname, "usage": m.Status.VMResourceUsage, "provisioned": m.Status.Initialization.Provisioned,
			"ready": conditions.IsTrue(&m, infrav1.ReadyCondition), "attached": m.Status.DNSAttached,
		})
		if err != nil {
			s.Fatal(err)
		}
		machines[m.Name] = m.Spec.SystemID + " " + m.Spec.ProviderID + " " + string(status)
	}
	return machines
}

// asBefore checks that all machines are found as they were, and that only one annotation changes in MAAS: that another
// management cluster manages the machines. MAAS lets only the user write it who acquired the machine.
func (s *story) asBefore(before []byte, calls int, held map[string]string) {
	s.Helper()
	s.Wait("all to be found again", func() (bool, string, error) {
		diff := cmp.Diff(held, s.held())
		return diff == "", diff, nil
	})
	want := map[string]int{"admin: POST machines/{id}/ set_workload_annotations": 1} // The machine of the cluster with its own credentials.
	s.Wait("that machine to be marked anew", func() (bool, string, error) {
		made := writes(calls)
		return maps.Equal(want, made), cmp.Diff(want, made), nil
	})
	changed, err := ledger.Remains(before, west.MAAS.State())
	if err != nil {
		s.Fatal(err)
	}
	for _, line := range changed {
		if !strings.Contains(line, "workload_annotations") {
			s.Errorf("something is different in MAAS: %s", line)
		}
	}
	s.Record.End()
	s.Record = life.WatchRecord(s.whole, west.MAAS, s.endpoint())
}

// nothingIn checks that a management cluster has no moved objects.
func (s *story) nothingIn(box *sandbox.Sandbox) {
	s.Helper()
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = life.Namespace, ownCredentials
	if box.Client.Get(s.Context(), client.ObjectKeyFromObject(secret), secret) == nil {
		s.Error("the credentials are there")
	}
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.MachineList{}, &clusterv1.ClusterClassList{}, &infrav1.MaasClusterList{}, &infrav1.MaasMachineList{},
		&infrav1.MaasMachineTemplateList{}, &infrav1.MaasClusterTemplateList{}, &ipamv1.IPAddressList{}, &ipamv1.IPAddressClaimList{},
	} {
		err := eventually.Wait(s.Within(shortTimeout), fmt.Sprintf("no %T", list), func() (bool, string, error) {
			err := box.Client.List(s.Context(), list, client.InNamespace(life.Namespace), client.Limit(1))
			raw, _ := json.Marshal(list)
			return !bytes.Contains(raw, []byte(`"uid"`)), string(raw), err
		})
		if err != nil {
			s.Error(err)
		}
	}
}

func pausedIn(t *testing.T, box *sandbox.Sandbox) map[string]bool {
	t.Helper()
	list := &clusterv1.ClusterList{}
	if err := box.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	paused := map[string]bool{}
	for _, cluster := range list.Items {
		paused[cluster.Name] = ptr.Deref(cluster.Spec.Paused, false)
	}
	return paused
}

// restore brings a backup of the east to the west, where clusters continue; the east is stopped.
func (s *story) restore() {
	before, calls, held := west.MAAS.State(), west.MAAS.Calls().Total, s.held()
	s.shell.Run(s.T, "backup")
	s.shell.Run(s.T, "stop")
	s.shell.Run(s.T, "restore")
	s.Box = west
	s.Available(controlPlanes + 2)
	s.ownAvailable()
	s.asBefore(before, calls, held)
}

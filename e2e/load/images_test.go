// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

const (
	// imagesZone has real LXDs, and maasZone MAAS's VM hosts.
	imagesZone, maasZone = "zone-b", "zone-a"
	imagesSubnet         = "10.64.0.0/16"
	imagesPoolGB         = 200
	// usualPace is the simulator's own: that of a MAAS on usual hardware.
	usualPace = ""
	// imagesLimit bounds the time to make VMs in one way, and to delete them.
	imagesLimit = 15 * time.Minute
	lookEvery   = 50 * time.Millisecond
)

// BenchmarkImages makes one VM, and many at once, on a few hosts: from an image on real LXDs, and then by MAAS on its
// VM hosts, which takes as long as MAAS usually does. It reports seconds from the MaasMachines until they are
// provisioned: then a VM from an image was started, which has its firmware and kernel still before it, and MAAS has
// installed the other one. The ratio is of the last one.
//
// VMs halt at once, and what they would do takes no time from those that are made; see package e2e/boot.
func BenchmarkImages(b *testing.B) {
	changed := strings.NewReplacer("[{name: zone-a}]", "[{name: zone-a}, {name: zone-b}]", "serial: true, ", "")
	w := startWorld(b, stage{region: changed.Replace(herdRegion(usualPace)), timeScale: 1, playInterval: playInterval})
	seen := &lxdCalls{}
	seen.reset()
	for i := range herdHosts {
		w.addLXDHost(b, fmt.Sprintf("direct-%d", i), seen)
	}
	w.startManager(b)
	ctx, cancel := context.WithTimeout(b.Context(), imagesLimit)
	defer cancel()
	if err := w.makeProvisionedCluster(ctx, "images"); err != nil {
		b.Fatal(err)
	}
	for _, vms := range []int{1, herdSize} {
		b.Run(fmt.Sprintf("vms=%d", vms), func(b *testing.B) { w.compareWays(b, vms, seen) })
	}
}

func (w *world) compareWays(b *testing.B, vms int, seen *lxdCalls) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // Left out.
	seen.reset()
	images := w.makeVMs(b, vms, imagesZone, "s-to-first", "s-to-last")
	seen.report(b)
	w.removeVMs(b)
	byMAAS := w.makeVMs(b, vms, maasZone, "s-MAAS-to-first", "s-MAAS-to-last")
	b.ReportMetric(byMAAS.Seconds()/images.Seconds(), "times-faster")
	w.removeVMs(b)
}

func (w *world) removeVMs(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), imagesLimit)
	defer cancel()
	if err := w.clear(ctx); err != nil {
		b.Fatal(err)
	}
}

// makeVMs makes VMs in a zone. It reports after what time the first and the last one were provisioned, and returns that
// of the last one.
func (w *world) makeVMs(b *testing.B, vms int, zone, firstUnit, lastUnit string) (last time.Duration) {
	b.Helper()
	first := time.Duration(0)
	ctx, cancel := context.WithTimeout(b.Context(), imagesLimit)
	defer cancel()
	began := time.Now()
	for i := range vms {
		spec := infrav1.MaasMachineSpec{
			Image: vmImage, ProvisioningMode: infrav1.ProvisioningModeLXD, FailureDomain: zone,
			MinCPU: 1, MinMemory: 2048, MinDiskSize: 8,
		}
		if err := w.makeMachineWith(ctx, "images", fmt.Sprintf("%s-%d-%d", zone, vms, i), false, spec); err != nil {
			b.Fatal(err)
		}
	}
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		done, err := w.provisionedMachines(ctx)
		if done > 0 && first == 0 {
			first = time.Since(began)
		}
		return done == vms, err
	})
	if err != nil {
		b.Fatalf("not all of %d VMs were provisioned: %v", vms, err)
	}
	last = time.Since(began)
	b.ReportMetric(first.Seconds(), firstUnit)
	b.ReportMetric(last.Seconds(), lastUnit)
	return last
}

// provisionedMachines is how many there are.
func (w *world) provisionedMachines(ctx context.Context) (provisioned int, err error) {
	list := &infrav1.MaasMachineList{}
	if err := w.client.List(ctx, list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		if ptr.Deref(list.Items[i].Status.Initialization.Provisioned, false) {
			provisioned++
		}
	}
	return provisioned, nil
}

// addLXDHost runs an LXD with the VMs' image, with an LXDHost that leads there.
func (w *world) addLXDHost(b *testing.B, name string, seen *lxdCalls) {
	b.Helper()
	server := directhost.StartWith(b, directhost.Options{PoolGB: imagesPoolGB})
	if err := server.AddImage(b.Context(), vmImage); err != nil {
		b.Fatal(err)
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	host, secret := server.Behind(b, seen.between).Objects(key, imagesZone)
	host.Spec.Subnet = imagesSubnet
	host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
	for _, object := range []client.Object{secret, host} {
		if err := w.client.Create(b.Context(), object); err != nil {
			b.Fatal(err)
		}
	}
}

// lxdCalls are the calls to LXDs that make and start VMs.
type lxdCalls struct {
	mutex  sync.Mutex
	since  time.Time
	under  map[string]change // by the ids of the operations
	begun  map[string]int    // of each kind
	took   map[string]time.Duration
	placed time.Duration // from since to each call that makes a VM, together
}

// change is one that LXD has begun with.
type change struct {
	kind  string
	began time.Time
}

// changeOf names what a call changes; "" if that is not of interest.
func changeOf(r *http.Request) string {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/1.0/instances":
		return "clone"
	case r.Method == http.MethodPut && path.Base(r.URL.Path) == "state":
		return "start"
	}
	return ""
}

func (c *lxdCalls) between(lxd http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := change{changeOf(r), time.Now()}
		read := &copied{ResponseWriter: w}
		lxd.ServeHTTP(read, r)
		c.mutex.Lock()
		defer c.mutex.Unlock()
		if id, is := strings.CutPrefix(r.URL.Path, "/1.0/operations/"); is {
			c.end(path.Dir(id))
			return
		}
		if now.kind != "" {
			c.begin(now, read.body.Bytes())
		}
	})
}

// reset begins anew.
func (c *lxdCalls) reset() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.since, c.placed = time.Now(), 0
	c.under, c.begun, c.took = map[string]change{}, map[string]int{}, map[string]time.Duration{}
}

func (c *lxdCalls) begin(now change, response []byte) {
	var answer struct{ Operation string }
	if json.Unmarshal(response, &answer) != nil || answer.Operation == "" {
		return
	}
	c.begun[now.kind]++
	if now.kind == "clone" {
		c.placed += now.began.Sub(c.since)
	}
	c.under[path.Base(answer.Operation)] = now
}

func (c *lxdCalls) end(id string) {
	if began, is := c.under[id]; is {
		c.took[began.kind] += time.Since(began.began)
		delete(c.under, id)
	}
}

// report reports how long it was until LXD was asked for a VM, and how long LXD took to clone and to start one: the
// means. LXD is asked again if it has not ended yet what it did with a VM.
func (c *lxdCalls) report(b *testing.B) {
	b.Helper()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	vms := float64(max(1, c.begun["clone"]))
	b.ReportMetric(c.placed.Seconds()/vms, "s-placement-mean")
	b.ReportMetric(c.took["clone"].Seconds()/vms, "s-clone-mean")
	b.ReportMetric(c.took["start"].Seconds()/vms, "s-start-mean")
	b.Logf("LXD was asked %v times", c.begun)
}

// copied keeps what is sent.
type copied struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (c *copied) Write(text []byte) (int, error) {
	c.body.Write(text)
	return c.ResponseWriter.Write(text)
}

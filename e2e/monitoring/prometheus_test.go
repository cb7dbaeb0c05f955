// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
)

const (
	chart = "../../charts/capmaas"
	// managerPort and initializerPort are those of the metrics in the pods.
	managerPort, initializerPort = 8443, 8080
	runTimeout                   = 15 * time.Minute
	// moment is how often the targets are found, and between two points of an answer.
	moment = 2 * time.Second
)

// without are the queries that find nothing in the run, and why.
var without = map[string]string{
	"alert CapmaasMAASRefusesTheKey": "no key is taken away",
	"alert CapmaasMachinesVanished":  "MAAS hides no machine",
	"alert CapmaasViewIsOld":         "Kubernetes is there all the time",
}

// What Prometheus scrapes of a sandbox has data for every panel and every alert: a host cluster comes up, a cluster gets
// VMs on it and asks for more servers than there are, MAAS goes away for a while, and the cluster is deleted.
func TestEveryPanelHasData(t *testing.T) {
	program := os.Getenv("CAPMAAS_PROMETHEUS")
	if program == "" {
		t.Skip("CAPMAAS_PROMETHEUS is not set: it is the path of Prometheus, such as that of Debian's package")
	}
	region, err := sandbox.RegionWithoutVMHosts()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	box, err := sandbox.Start(ctx, sandbox.Options{
		Region: region, LXD: sandbox.LXDRequired, TimeScale: 300,
		Values: map[string]any{"diagnostics": map[string]any{"insecure": true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Stop(); err != nil {
			t.Error(err)
		}
	})
	p := startPrometheus(ctx, t, program, box)
	p.checkRules(ctx, t)

	apply(ctx, t, box, "lxd-host", "hosts", map[string]string{
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "0",
		"LXD_STORAGE_BACKEND": "btrfs", "LXD_STORAGE_SIZE": sandbox.PoolGB, "LXD_RESOURCE_POOL": "capi",
	})
	if err := box.WaitAvailable(ctx, client.ObjectKey{Namespace: "default", Name: "hosts"}, 3); err != nil {
		t.Fatal(err)
	}
	if err := box.ApplyFile(ctx, "clusterclass/clusterclass-capmaas.yaml"); err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, box, "lxd-topology", "c1", map[string]string{"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "8"})
	p.await(ctx, t, `sum(capmaas_machines{reason="NoMachineAvailable"}) > 0`)
	p.await(ctx, t, `sum(capmaas_machines{cluster="default/c1",mode="lxd",reason="Ready"}) > 2`)
	away, err := box.StopMAAS(ctx, sandbox.Refusing)
	if err != nil {
		t.Fatal(err)
	}
	p.await(ctx, t, "capmaas_maas_circuit_open > 0")
	if err := away.Return(ctx); err != nil {
		t.Fatal(err)
	}
	p.await(ctx, t, "max(capmaas_maas_circuit_open) < 1")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	if err := box.Client.Delete(ctx, cluster); err != nil {
		t.Fatal(err)
	}
	p.await(ctx, t, `sum(capmaas_machines{reason="Deleting"}) > 0`)
	p.checkQueries(ctx, t)
}

// checkQueries reports how many series each query has had.
func (p *prometheusServer) checkQueries(ctx context.Context, t *testing.T) {
	t.Helper()
	queries, err := Queries(chart)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range queries {
		expr := strings.ReplaceAll(query.Expr, "$__rate_interval", "30s")
		if strings.HasPrefix(query.Where, "alert ") { // What it compares has to be there; that it fires would take hours.
			expr = regexp.MustCompile(` (?:[<>]|==) \d+\b`).ReplaceAllString(expr, "")
		}
		series, points, err := p.since(ctx, expr)
		t.Logf("%-50s %3d series, %5d points", query.Where, series, points)
		switch why, expected := without[query.Where]; {
		case err != nil:
			t.Errorf("%s: %v", query.Where, err)
		case expected && points > 0:
			t.Errorf("%s has data, though %s", query.Where, why)
		case !expected && points == 0:
			t.Errorf("%s has no data: %s", query.Where, expr)
		}
	}
}

func apply(ctx context.Context, t *testing.T, box *sandbox.Sandbox, flavor, name string, variables map[string]string) {
	t.Helper()
	all := map[string]string{
		"NAMESPACE": "default", "CLUSTER_NAME": name, "KUBERNETES_VERSION": "v1.35.0",
		"MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": "u-2204-k8s-1.35",
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	}
	maps.Copy(all, variables)
	manifest, err := box.Flavor(flavor, all)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.ApplyYAML(ctx, strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
}

// prometheusServer scrapes a sandbox.
type prometheusServer struct {
	url   string
	began time.Time
}

// startPrometheus runs it with the chart's alerts, until the test ends.
func startPrometheus(ctx context.Context, t *testing.T, program string, box *sandbox.Sandbox) *prometheusServer {
	t.Helper()
	alerts, err := filepath.Abs(filepath.Join(chart, "files", "monitoring", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	listen, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config, targets := filepath.Join(dir, "prometheus.yaml"), filepath.Join(dir, "targets.json")
	content := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 5s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: capmaas, file_sd_configs: [{files: [%q], refresh_interval: 1s}]}]\n", alerts, targets)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	command := exec.CommandContext(ctx, program,
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen.Address())
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &prometheusServer{url: "http://" + listen.Address(), began: time.Now()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		writeTargets(ctx, box, targets)
	}()
	t.Cleanup(func() {
		_ = command.Wait() // It was killed: the test's context ended.
		<-ended
		_ = listen.Close() // No other process got the port meanwhile.
		if t.Failed() {
			t.Logf("Prometheus' log:\n%s", log.String())
		}
	})
	return p
}

// writeTargets keeps a file with the addresses of the metrics, until the context ends.
func writeTargets(ctx context.Context, box *sandbox.Sandbox, path string) {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var written string
	for ctx.Err() == nil {
		var all []group
		add := func(k *kubelet.Kubelet, container string, port int32, labels map[string]string) {
			for _, c := range k.Containers() {
				if c.Name == container && c.Ports[port] != 0 {
					all = append(all, group{[]string{fmt.Sprintf("127.0.0.1:%d", c.Ports[port])}, labels})
				}
			}
		}
		add(box.Kubelet, sandbox.ManagerContainer, managerPort, map[string]string{})
		for _, node := range box.HostNodes() {
			add(node.Kubelet, sandbox.InitializerContainer, initializerPort, map[string]string{"node": node.Name})
		}
		content, _ := json.Marshal(all) // Strings and maps of them.
		if string(content) != written && os.WriteFile(path+".new", content, 0o600) == nil && os.Rename(path+".new", path) == nil {
			written = string(content)
		}
		select {
		case <-ctx.Done():
		case <-time.After(moment):
		}
	}
}

// checkRules wants Prometheus to understand each of the chart's alerts.
func (p *prometheusServer) checkRules(ctx context.Context, t *testing.T) {
	var answer struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	err := eventually.Wait(ctx, "Prometheus to have evaluated the alerts", func() (bool, string, error) {
		if err := p.ask(ctx, "rules", nil, &answer); err != nil || len(answer.Groups) == 0 {
			return false, fmt.Sprint(err), nil // It is starting.
		}
		for _, rule := range answer.Groups[0].Rules {
			if rule.Health != "ok" {
				return false, rule.Name + " is " + rule.Health + " " + rule.LastError, nil
			}
		}
		return true, "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until an expression has a value.
func (p *prometheusServer) await(ctx context.Context, t *testing.T, expr string) {
	t.Helper()
	err := eventually.Wait(ctx, expr, func() (bool, string, error) {
		var answer struct{ Result []json.RawMessage }
		err := p.ask(ctx, "query", url.Values{"query": {expr}}, &answer)
		return len(answer.Result) > 0, "", err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// since returns how many series and points an expression has had since Prometheus began.
func (p *prometheusServer) since(ctx context.Context, expr string) (series, points int, err error) {
	var answer struct {
		Result []struct{ Values []json.RawMessage }
	}
	err = p.ask(ctx, "query_range", url.Values{
		"query": {expr}, "start": {fmt.Sprint(p.began.Unix())}, "end": {fmt.Sprint(time.Now().Add(moment).Unix())}, "step": {moment.String()},
	}, &answer)
	for _, one := range answer.Result {
		points += len(one.Values)
	}
	return len(answer.Result), points, err
}

// ask calls Prometheus' API.
func (p *prometheusServer) ask(ctx context.Context, path string, parameters url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+parameters.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Data  any
		Error string
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, response.Status, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

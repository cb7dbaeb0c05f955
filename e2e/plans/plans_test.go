// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// TestThePlanIsWhatHappens plans clusters of any size on hosts of any size, some of them cordoned, and makes them: the
// VMs are where the plan said, and what does not fit waits. Then it does the same for the drain of a host.
func TestThePlanIsWhatHappens(t *testing.T) {
	t.Logf("again: %s", replay())
	dice := rand.New(rand.NewPCG(uint64(attack.seed), 1))
	for i := range attack.fleets {
		f := newFleet(dice, i)
		t.Run(fmt.Sprintf("%d %s %dx%d cores", i, f.pool, f.replicas, f.cores), func(t *testing.T) {
			f.Life = life.Begin(t, box, fmt.Sprint("fleet-", i))
			f.cordon()
			if f.comesUp() {
				f.isDrained(dice)
			}
			f.Delete()
			f.uncordon()
		})
	}
}

// fleet is a cluster of VMs.
type fleet struct {
	*life.Life
	pool                    string
	replicas, cores, memory int
	cordoned                []string
}

func newFleet(dice *rand.Rand, number int) *fleet {
	f := &fleet{pool: slices.Sorted(maps.Keys(pools))[number%2], replicas: 1 + 2*dice.IntN(2), cores: 2 + dice.IntN(5), memory: 4096 * (1 + dice.IntN(3))}
	if attack.fleets == 1 {
		f.pool, f.replicas = "default", 1 // The bounded test: a successor comes before the only control plane goes.
	}
	for range dice.IntN(3) {
		f.cordoned = append(f.cordoned, hosts[dice.IntN(len(hosts))]["name"].(string))
	}
	return f
}

func (f *fleet) cordon() {
	f.Helper()
	for _, name := range f.cordoned {
		f.change(name, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable = true })
	}
}

func (f *fleet) uncordon() {
	f.Helper()
	for _, name := range f.cordoned {
		f.change(name, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable = false })
	}
}

// change changes the LXDHost of a VM host, when it is there.
func (f *fleet) change(name string, how func(*infrav1.LXDHostSpec)) {
	f.Helper()
	host := hostNamed(name)
	f.Wait("LXDHost "+name, func() (bool, string, error) {
		err := box.Client.Get(f.Context(), client.ObjectKeyFromObject(host), host)
		return err == nil, fmt.Sprint(err), client.IgnoreNotFound(err)
	})
	life.ChangeLXDHost(f.T, box, host, how)
}

func hostNamed(name string) *infrav1.LXDHost {
	host := &infrav1.LXDHost{}
	host.Namespace, host.Name = sandbox.Namespace, name
	return host
}

// comesUp plans the cluster, makes it, and reports whether it fits.
func (f *fleet) comesUp() (fits bool) {
	f.Helper()
	manifest, err := box.Flavor("lxd", map[string]string{
		"NAMESPACE": life.Namespace, "CLUSTER_NAME": f.Key.Name, "KUBERNETES_VERSION": "v1.35.0", "MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": "u-2204-k8s-1.35",
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(f.replicas), "CONTROL_PLANE_MACHINE_RESOURCEPOOL": f.pool, "WORKER_MACHINE_COUNT": "0",
		"CONTROL_PLANE_MACHINE_MINCPU": strconv.Itoa(f.cores), "CONTROL_PLANE_MACHINE_MINMEMORY": strconv.Itoa(f.memory),
	})
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(f.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		f.Fatal(err)
	}
	p := f.plan("--filename=" + file)
	if made := p.count(plan.Create); made == 0 {
		f.Log("nothing fits") // What would be made then is a Machine that waits.
		return false
	}
	f.Create(manifest)
	if p.Fits {
		f.Available(f.replicas)
	} else {
		f.Wait("a machine to find no host", func() (bool, string, error) {
			placed, waiting := f.vms()
			return len(placed) == p.count(plan.Create) && waiting == 1, fmt.Sprint(placed, waiting), nil
		})
	}
	f.compare(p, p.planned(nil))
	return p.Fits
}

// isDrained plans the drain of a host of the cluster, and drains it.
func (f *fleet) isDrained(dice *rand.Rand) {
	f.Helper()
	before, _ := f.vms()
	name := before[dice.IntN(len(before))]
	p := f.plan("drain", name, "--namespace="+sandbox.Namespace)
	f.change(name, func(spec *infrav1.LXDHostSpec) { spec.Evacuate = true })
	host, planned := hostNamed(name), p.planned(before)
	stay := 0
	for _, on := range planned {
		if on == name {
			stay++
		}
	}
	f.Wait(fmt.Sprintf("%s to have %d VMs", name, stay), func() (bool, string, error) {
		if err := box.Client.Get(f.Context(), client.ObjectKeyFromObject(host), host); err != nil {
			return false, "", err
		}
		evacuation := ptr.Deref(host.Status.Evacuation, infrav1.LXDEvacuationStatus{})
		done := conditions.IsTrue(host, infrav1.EvacuatedCondition)
		if stay > 0 {
			done = int(evacuation.Held) == stay && int(evacuation.Waiting+evacuation.Leaving) == 0
		}
		return done, conditions.GetMessage(host, infrav1.EvacuatedCondition), nil
	})
	f.Available(f.replicas)
	f.compare(p, planned)
	f.change(name, func(spec *infrav1.LXDHostSpec) { spec.Evacuate = false })
}

// vms returns the hosts of the cluster's VMs, sorted, and how many machines wait for a host.
func (f *fleet) vms() (hosts []string, waiting int) {
	f.Helper()
	machines, _ := f.MaasMachines()
	for i := range machines {
		why := conditions.Get(&machines[i], infrav1.MachineDeployedCondition)
		switch {
		case machines[i].Status.LXDHost != "":
			hosts = append(hosts, machines[i].Status.LXDHost)
		case why != nil && why.Reason == infrav1.NoHostAvailableReason:
			waiting++
		}
	}
	slices.Sort(hosts)
	return hosts, waiting
}

// compare compares where the VMs are with what was planned. Cluster API takes any of the zones that have equally few
// control planes: then only their number is planned.
func (f *fleet) compare(p *planned, want []string) {
	f.Helper()
	got, _ := f.vms()
	f.Logf("everything fits: %t; planned: %v; now: %v", p.Fits, want, got)
	if exact := len(pools[f.pool]) == 1 || f.replicas == len(pools[f.pool]) && p.Fits; !exact {
		if len(want) != len(got) {
			f.Errorf("%d VMs are placed, %d were planned", len(got), len(want))
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("the VMs' hosts (-planned +now):\n%s\nThe plan was %s", diff, p.text)
	}
}

// planned is what capmaasctl plan prints.
type planned struct {
	Fits  bool        `json:"fits"`
	Steps []plan.Step `json:"steps"`
	text  []byte
}

// count counts the steps that fit.
func (p *planned) count(action plan.Action) (n int) {
	for _, step := range p.Steps {
		if step.Action == action && step.Fits {
			n++
		}
	}
	return n
}

// planned returns the hosts of VMs, sorted, when the plan is carried out.
func (p *planned) planned(hosts []string) []string {
	hosts = slices.Clone(hosts)
	for _, step := range p.Steps {
		switch {
		case !step.Fits:
		case step.Action == plan.Create:
			hosts = append(hosts, step.Host)
		case step.Action == plan.Delete:
			hosts = slices.Delete(hosts, slices.Index(hosts, step.Host), slices.Index(hosts, step.Host)+1)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// plan runs capmaasctl plan.
func (f *fleet) plan(args ...string) *planned {
	f.Helper()
	command := exec.CommandContext(f.Context(), filepath.Join(os.Getenv("CAPMAAS_BIN"), "capmaasctl"),
		append([]string{"plan"}, append(args, "--kubeconfig="+box.KubeconfigPath, "--maas-endpoint="+box.MAASURL, "--output=json")...)...)
	command.Env = append(os.Environ(), "MAAS_API_KEY="+box.MAASAPIKey)
	text, err := command.Output()
	p := &planned{text: text}
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		f.Fatalf("capmaasctl plan: %v\n%s", err, text)
	}
	if err := json.Unmarshal(text, p); err != nil {
		f.Fatalf("reading what capmaasctl plan prints: %v\n%s", err, text)
	}
	if p.Fits != (err == nil) || len(p.Steps) == 0 {
		f.Errorf("capmaasctl plan ended with %v; it printed %s", err, text)
	}
	return p
}

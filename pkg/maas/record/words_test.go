// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// opsOf are the constants of type Op, as the source has them.
func opsOf(t *testing.T) (ops []Op) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "ops.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, is := node.(*ast.ValueSpec)
		if !is {
			return true
		}
		if kind, is := spec.Type.(*ast.Ident); !is || kind.Name != "Op" {
			return true
		}
		for _, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, Op(text))
		}
		return true
	})
	if len(ops) < 20 {
		t.Fatalf("only %d operations were found", len(ops))
	}
	return ops
}

// Whoever adds an operation says in words what it asks for.
func TestEveryOperationHasWords(t *testing.T) {
	seen := map[string]Op{}
	for _, op := range opsOf(t) {
		text, known := words[op]
		if !known || strings.Contains(op.Words(), "later version") {
			t.Errorf("%s has no words", op)
		}
		if before, taken := seen[text]; taken {
			t.Errorf("%s and %s have the same words", op, before)
		}
		seen[text] = op
		d := Calls{Pending: []Pending{{Op: op, At: metav1.Now()}}}
		if got := d.entries(); len(got) != 1 || got[0].Op != op || got[0].Since == nil || !strings.Contains(got[0].Words, text) {
			t.Errorf("%s: %+v", op, got)
		}
	}
	if len(words) != len(seen) {
		t.Errorf("%d operations have words, but there are %d", len(words), len(seen))
	}
	if got := Op("teleport").Words(); !strings.Contains(got, "teleport") {
		t.Errorf("an operation of a later version: %q", got)
	}
}

// Whoever adds a field says in words what it means.
func TestEveryFieldOfTheRecordHasWords(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	calls := Calls{Pending: []Pending{{Op: Deploy, At: at}}, Unknown: `{"wings":2}`}
	machine := MachineData{
		Calls: calls, Deployed: "abc123", DeployedSince: &at, FormerBoot: "boo123", Phase: &Phase{Name: "erasing-disks", Since: at}, GivenBack: &at,
		Hosts: []string{"lxd-a"}, Registers: true, Runs: "lxd-r", Addresses: []string{"00:16:3e:01:02:03"},
		Cleanup:  &Cleanup{UnreachableSince: &at, Tries: 3, CameBack: 2, DeletedAt: &at, Namesakes: true},
		Release:  &infrav1.MachineReleaseStatus{Erase: infrav1.EraseMode("Quick"), StartTime: &at, Failures: 4},
		Storage:  &StorageLayout{SystemID: "sto123"},
		Excluded: "exc123", Quarantine: Quarantined, Lost: "los123", Unused: []string{"unu123"},
		Tests: &Tests{SystemID: "tes123", Since: at, Failed: "failed memtester"},
	}
	cluster := ClusterData{Calls: calls, Published: true, Kept: []KeptMachine{{
		SystemID: "kep123", Hostname: "metal-k", For: "MachineDeployment/md-0", Since: at, Until: at, Reason: infrav1.MAASBusyReason, Message: "wait",
		Giving: &MachineData{Calls: Calls{Pending: []Pending{{Op: Release, At: at}}}},
	}}}
	host := HostData{Calls: calls,
		Left: []LeftVM{{Hostname: "vm-l", Namespace: "default", Machine: "cp-0", Host: "lxd-b", Since: at, Spared: "nobody knows it"}}}
	remediation := RemediationData{Calls: calls, Remediation: &infrav1.RemediationProgress{Step: infrav1.RemediationPowerOff, Since: &at}}
	all := slices.Concat(machine.entries(), cluster.entries(), host.entries(), remediation.entries())
	said := map[string]string{}
	for _, e := range all {
		said[e.Field] += e.Words + "\n"
		if strings.Contains(e.Words, "%!") {
			t.Errorf("%s: %q", e.Field, e.Words)
		}
	}
	for _, data := range []any{machine, cluster, host, remediation} {
		value := reflect.ValueOf(data)
		for _, field := range reflect.VisibleFields(value.Type()) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "-" {
				name = "unknown"
			}
			if value.FieldByIndex(field.Index).IsZero() {
				t.Errorf("this test does not set %s of %T", field.Name, data)
			}
			if name != "" && said[name] == "" {
				t.Errorf("%s is recorded, and nothing is said of it", field.Name)
			}
		}
	}
	for field, want := range map[string][]string{
		"pending": {"deploy the machine", "metal-k: asked to release"}, "deployed": {"abc123"}, "phase": {"erasing disks"}, "hosts": {"lxd-a"}, "registers": {"device"}, "runs": {"lxd-r"}, "addresses": {"00:16:3e:01:02:03"},
		"cleanup": {"3 request", "2 time", "several hosts"}, "release": {"Quick", "4 time"}, "storage": {"sto123"}, "excluded": {"exc123"}, "lost": {"los123"}, "tests": {"tes123 failed memtester"},
		"remediation": {"PowerOff"}, "kept": {"metal-k (kep123)", "MachineDeployment/md-0", "MAASBusy: wait"}, "left": {"vm-l", "default/cp-0", "lxd-b", "nobody knows it"},
		"unknown": {"wings"},
	} {
		for _, part := range want {
			if !strings.Contains(said[field], part) {
				t.Errorf("%s: %q lacks %q", field, said[field], part)
			}
		}
	}
	none := MachineData{}
	if got := none.entries(); len(got) != 0 {
		t.Errorf("of an empty record it says %v", got)
	}
	if _, err := json.Marshal(all); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package hands_test

import (
	"fmt"
	"net/http"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/e2e/chaos/clusters"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// A manager trusts for some minutes that a record is as it wrote it; a new one reads it.
func TestANewManagerPutsRecordsRight(t *testing.T) {
	auditor, operator := openAudit(t), clusters.As(t, box, "operator")
	changes := map[string]func(path string){
		"edited":  func(path string) { operator.Do(http.MethodPut, path, "", "ip_addresses", "10.77.2.99") },
		"deleted": func(path string) { operator.Do(http.MethodDelete, path, "") },
	}
	all, addresses := map[string]*clusters.Cluster{}, map[string]string{}
	for what := range changes {
		name := "record-" + what
		c := clusters.New(t, box, clusters.Options{
			Key: client.ObjectKey{Namespace: "default", Name: name}, Auditor: auditor, RecordChanges: true,
		}, clusters.Machine{Name: name + "-a", VM: true, Tags: []string{recordTag}})
		c.AwaitRunning(name + "-a")
		all[what], addresses[what] = c, c.In(name + "-a").Addresses[0].String()
		c.LeadsTo(addresses[what])
	}
	for what, change := range changes {
		change(recordPath(operator, all[what].Endpoint()))
	}
	if err := box.Kubelet.Kill(sandbox.ManagerContainer); err != nil {
		t.Fatal(err)
	}
	for what, c := range all {
		c.LeadsTo(addresses[what])
		c.AwaitRunning(c.Key.Name + "-a")
		c.Settled()
		c.Delete()
		c.CheckNothingLeft()
	}
}

// recordPath is where MAAS has a DNS record.
func recordPath(by *clusters.Person, fqdn string) string {
	by.Helper()
	list := by.List("dnsresources/", "fqdn", fqdn)
	if len(list) != 1 {
		by.Fatalf("MAAS has %d records of %s, want one", len(list), fqdn)
	}
	return fmt.Sprintf("dnsresources/%.0f/", list[0]["id"])
}

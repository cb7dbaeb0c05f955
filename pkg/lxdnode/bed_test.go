// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

func connectNode(t *testing.T, socket string) *Node {
	t.Helper()
	n, err := Connect(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// named is a configuration whose objects are all called after name, so that many fit on one daemon.
func named(name string) Config {
	return Config{
		StoragePool: "pool-" + name, StorageBackend: "dir", NetworkBridge: "br0",
		Project: "project-" + name, ListenAddress: "10.0.2.15:8443",
	}
}

// states maps the checks of a report to their states.
func states(report []Check) map[string]State {
	all := map[string]State{}
	for _, check := range report {
		all[check.Name] = check.State
	}
	return all
}

func has(checks []Check, state State) bool {
	return slices.ContainsFunc(checks, func(c Check) bool { return c.State == state })
}

// ready reports whether everything is as wanted.
func ready(checks []Check) bool {
	return len(checks) > 0 && !has(checks, Failed) && !has(checks, Missing)
}

func allIn(state State) map[string]State {
	return map[string]State{
		StepServer: OK, StepPool: state, StepBridge: state, StepInterfaces: OK, StepProject: state, StepProfile: state, StepListen: state,
	}
}

// with is a copy of states in which the named step has another one; with "" it is not there.
func with(all map[string]State, step string, state State) map[string]State {
	changed := map[string]State{}
	for name, each := range all {
		changed[name] = each
	}
	changed[step] = state
	if state == "" {
		delete(changed, step)
	}
	return changed
}

func wantStates(t *testing.T, report []Check, want map[string]State) {
	t.Helper()
	if diff := cmp.Diff(want, states(report)); diff != "" {
		t.Errorf("checks (-want +got):\n%s\n%+v", diff, report)
	}
}

// mustPrepare prepares and wants all checks but the server's and the bridge's in one state.
func mustPrepare(t *testing.T, n *Node, c Config, want State) []Check {
	t.Helper()
	report, err := n.Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantStates(t, report, with(allIn(want), StepBridge, OK))
	return report
}

// stepError finds the error of a step.
func stepError(t *testing.T, err error, step string) *Error {
	t.Helper()
	var found *Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			if errors.As(each, &found) && found.Step == step {
				return found
			}
		}
	}
	if !errors.As(err, &found) || found.Step != step {
		t.Fatalf("there is no error of the step %s in %v", step, err)
	}
	return found
}

// wantMentioned wants words in a text for people.
func wantMentioned(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not mention %q", text, word)
		}
	}
}

// belongings is everything on a node that a user may have put there: name to content.
type belongings map[string]any

func inventory(t *testing.T, client lxd.InstanceServer) belongings {
	t.Helper()
	all := belongings{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	server, _, err := client.GetServer()
	must(err)
	all["server"] = server.Config
	pools, err := client.GetStoragePools()
	must(err)
	for _, pool := range pools {
		all["pool "+pool.Name] = pool
	}
	networks, err := client.GetNetworks()
	must(err)
	for _, network := range networks {
		network.UsedBy = nil
		all["network "+network.Name] = network
	}
	certificates, err := client.GetCertificates()
	must(err)
	for _, certificate := range certificates {
		all["certificate "+certificate.Fingerprint] = certificate
	}
	projects, err := client.GetProjects()
	must(err)
	for _, project := range projects {
		profiles, err := client.UseProject(project.Name).GetProfiles()
		must(err)
		for _, profile := range profiles {
			all[fmt.Sprintf("profile %s/%s", project.Name, profile.Name)] = profile
		}
		project.UsedBy = nil
		all["project "+project.Name] = project
	}
	return all
}

// wantKept wants that nothing in before was changed.
func wantKept(t *testing.T, before, after belongings) {
	t.Helper()
	kept := belongings{}
	for name := range before {
		kept[name] = after[name]
	}
	if diff := cmp.Diff(before, kept); diff != "" {
		t.Errorf("what was there was changed (-before +after):\n%s", diff)
	}
}

// writesDuring gives the actions of LXD's lifecycle events while do runs.
func writesDuring(t *testing.T, socket string, do func()) []string {
	t.Helper()
	client := lxdtest.Connect(t, socket)
	listener, err := client.GetEventsAllProjects()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Disconnect()
	events := make(chan api.Event, 1000)
	if _, err := listener.AddHandler([]string{api.EventTypeLifecycle}, func(e api.Event) { events <- e }); err != nil {
		t.Fatal(err)
	}
	// LXD accepts the listener before it sends it events, and earlier ones are lost.
	for tries := 1; ; tries++ {
		if told, heard := eventsUntilMark(t, client, events, time.Second); heard {
			break
		} else if tries == int(eventually.Limit.Seconds()) {
			t.Fatalf("LXD sent no event about %d writes; it sent %v", tries, told)
		}
	}
	do()
	// The last write is the test's own: when its event has come, so have those of all before it.
	actions, heard := eventsUntilMark(t, client, events, eventually.Limit)
	if !heard {
		t.Fatalf("LXD sent no event about the last write; it sent %v", actions)
	}
	return actions
}

// eventsUntilMark makes a profile and waits for its event. It returns the actions of the events before, without those
// on such profiles.
func eventsUntilMark(t *testing.T, client lxd.InstanceServer, events <-chan api.Event, patience time.Duration) (actions []string, heard bool) {
	t.Helper()
	const prefix = "mark-"
	mark := prefix + rand.Text()
	if err := client.CreateProfile(api.ProfilesPost{Name: mark}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.DeleteProfile(mark); err != nil {
			t.Error(err)
		}
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			return actions, false
		case e := <-events:
			var event api.EventLifecycle
			if err := json.Unmarshal(e.Metadata, &event); err != nil {
				t.Fatal(err)
			}
			switch name := path.Base(event.Source); {
			case event.Action == api.EventLifecycleProfileCreated && name == mark:
				return actions, true
			case !strings.HasPrefix(name, prefix):
				actions = append(actions, event.Action)
			}
		}
	}
}

// trustedClients lists the clients whose certificates LXD trusts.
func trustedClients(t *testing.T, client lxd.InstanceServer) []string {
	t.Helper()
	certificates, err := client.GetCertificates()
	if err != nil {
		t.Fatal(err)
	}
	var clients []string
	for _, certificate := range certificates {
		clients = append(clients, clientOf(certificate))
	}
	slices.Sort(clients)
	return clients
}

// called is what Distrust removes: the certificates of one client.
func called(name string) func(client string) bool {
	return func(client string) bool { return client == name }
}

func newKeys(t *testing.T, name string) Keys {
	t.Helper()
	keys, err := NewKeys(name)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// SPDX-License-Identifier: Apache-2.0

package played_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// Clients see their own certificates, wherever LXD names them, and are trusted by them.
func TestClientsHaveTheirOwnCertificates(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	fingerprint, err := lxdnode.Fingerprint(b.keys.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	server := lxdtest.Connect(t, b.daemon.Socket())
	all, err := server.GetCertificates()
	if err != nil || len(all) != 1 || all[0].Fingerprint != fingerprint || all[0].Certificate != string(b.keys.Certificate) {
		t.Fatalf("LXD trusts %+v, %v", all, err)
	}
	found, etag, err := server.GetCertificate(fingerprint[:12])
	if err != nil || found.Fingerprint != fingerprint {
		t.Fatalf("found by a part of it: %+v, %v", found, err)
	}
	put := found.Writable()
	put.Name = "renamed"
	if err := server.UpdateCertificate(fingerprint, put, etag); err != nil {
		t.Fatal(err)
	}
	auth := func() string {
		_, got, _ := b.by(&b.keys, "GET /1.0", "")
		text, _ := got["metadata"].(map[string]any)["auth"].(string)
		return text
	}
	if got := auth(); got != "trusted" {
		t.Errorf("with the key, it is %s", got)
	}
	if err := b.daemon.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := auth(); got != "trusted" {
		t.Errorf("with the key, after a restart, it is %s", got)
	}
	events := listen(t, server)
	if err := server.DeleteCertificate(fingerprint); err != nil {
		t.Fatal(err)
	}
	for event := range events {
		if event.Type == api.EventTypeLifecycle && strings.Contains(string(event.Metadata), "/1.0/certificates/"+fingerprint) {
			break
		}
	}
	if got := auth(); got != "untrusted" {
		t.Errorf("without the key, it is %s", got)
	}
}

// listen returns the events of an LXD, until the test ends.
func listen(t *testing.T, server lxdclient.InstanceServer) <-chan api.Event {
	t.Helper()
	listener, err := server.GetEventsAllProjects()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listener.Disconnect)
	events := make(chan api.Event, 1000)
	if _, err := listener.AddHandler(nil, func(event api.Event) { events <- event }); err != nil {
		t.Fatal(err)
	}
	return events
}

// What the proxy made an operation is one like LXD's own.
func TestItsOperationsAreLikeLXDs(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if err := b.daemon.Play("6.9"); err != nil {
		t.Fatal(err)
	}
	server := lxdtest.Connect(t, b.daemon.Socket())
	events := listen(t, server)
	_, got, header := b.by(nil, "POST /1.0/storage-pools", `{"name":"default","driver":"dir"}`)
	at, _ := got["operation"].(string)
	if got["type"] != "async" || at == "" || header.Get("Location") != at {
		t.Fatalf("got %v, %v", got, header)
	}
	if _, list := b.ask("GET /1.0/operations", ""); !slices.Contains(list["running"].([]any), any(at)) {
		t.Errorf("the operations are %v", list)
	}
	for event := range events {
		operation := api.Operation{}
		if event.Type != api.EventTypeOperation || json.Unmarshal(event.Metadata, &operation) != nil || !strings.HasSuffix(at, operation.ID) {
			continue
		}
		if operation.StatusCode.IsFinal() {
			break
		}
	}
	if _, metadata := b.ask("GET "+at, ""); metadata["status"] != "Failure" || metadata["err"] == "" || fmt.Sprint(metadata["err_code"]) != "409" {
		t.Errorf("it has come to %v", metadata)
	}
	if status, _ := b.ask("DELETE "+at, ""); status != http.StatusBadRequest {
		t.Errorf("cancelled: %d", status)
	}
}

// An upgrade of LXD under a VM renames a key of it, drops connections and forgets operations.
func TestAnUpgradeUnderAVM(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if err := b.daemon.Play("6.6"); err != nil {
		t.Fatal(err)
	}
	b.vm("vm", `,"security.secureboot":"false"`)
	shown := func() string {
		_, vm := b.ask("GET /1.0/instances/vm?project=p", "")
		config := vm["config"].(map[string]any)
		return fmt.Sprint(config["security.secureboot"], " ", config["boot.mode"])
	}
	if got := shown(); got != "false <nil>" {
		t.Errorf("before it is %s", got)
	}
	listener, err := lxdtest.Connect(t, b.daemon.Socket()).GetEvents()
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := b.by(nil, "POST /1.0/storage-pools/default/volumes/custom", `{"name":"v","type":"custom"}`)
	if err := b.daemon.Play("6.9"); err != nil {
		t.Fatal(err)
	}
	_ = listener.Wait() // It ends.
	if status, _ := b.ask(fmt.Sprint("GET ", got["operation"]), ""); status != http.StatusNotFound {
		t.Errorf("an operation from before: %d", status)
	}
	if got := shown(); got != "<nil> uefi-nosecureboot" {
		t.Errorf("after it is %s", got)
	}
	if err := b.daemon.Play("six"); err == nil {
		t.Error("no version is one")
	}
}

// What plays a version listens where LXD does, and as long.
func TestADaemonThatIsKilledIsNotThere(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxd.Options{Plays: "6.9"})
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := lxd.Connect(t.Context(), d.Socket()); err == nil {
		t.Error("it responds")
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	server, _, err := lxdtest.Connect(t, d.Socket()).GetServer()
	if err != nil || server.Environment.ServerVersion != "6.9" {
		t.Errorf("after the restart: %+v, %v", server, err)
	}
}

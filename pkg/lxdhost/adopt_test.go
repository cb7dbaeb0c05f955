// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

const (
	callsOfAdopt      = 2
	anotherAddress    = "00:16:3e:00:00:01"
	ofAnother         = "of-another"
	composed, running = "composed", "running"
)

func TestAdopt(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{composed, running} {
		b.foreign(b.server, name, map[string]string{"user.note": "kept"})
	}
	b.foreign(b.server, ofAnother, theirs.config())
	operation, err := b.server.UpdateInstanceState(running, api.InstanceStatePut{Action: "start", Timeout: -1}, "")
	lxdtest.Finish(t, operation, err)
	has := func(name string) []string { return slices.Collect(maps.Values(macs(b.instance(name)))) }

	wantKind(t, b.host.Adopt(t.Context(), composed, ours, []string{anotherAddress}), KindConflict)
	wantKind(t, b.host.Adopt(t.Context(), composed, ours, append(has(composed), anotherAddress)), KindConflict)
	wantKind(t, b.host.Adopt(t.Context(), composed, ours, nil), KindConflict)
	wantKind(t, b.host.Adopt(t.Context(), ofAnother, ours, has(ofAnother)), KindConflict)
	wantKind(t, b.host.Adopt(t.Context(), "missing", ours, nil), KindNotFound)
	if marks := marksOf(b.instance(composed).Config); marks != (Marks{}) {
		t.Errorf("it is marked: %+v", marks)
	}
	server, _, err := b.all.GetServer()
	b.must(err)
	asksAgain := 0
	if strings.HasPrefix(server.Environment.ServerVersion, "5.0.") { // It fails where no agent runs in the VM.
		asksAgain = 1
	}
	for name, more := range map[string]int{composed: 0, running: asksAgain} {
		b.counted("Adopt", callsOfAdopt+more, func() error { return b.host.Adopt(t.Context(), name, ours, has(name)) })
		wantKind(t, b.host.Adopt(t.Context(), name, ours, []string{anotherAddress}), KindConflict)
		b.counted("Adopt again", callsOfNothingToDo, func() error { return b.host.Adopt(t.Context(), name, ours, nil) })
		if config := b.instance(name).Config; marksOf(config) != ours || config["user.note"] != "kept" {
			t.Errorf("%s: the configuration is %v", name, config)
		}
		wantKind(t, b.host.Adopt(t.Context(), name, theirs, has(name)), KindConflict)
		b.must(b.host.Delete(t.Context(), name, ours, time.Time{}))
		b.wantGone(name)
	}
	if marks := marksOf(b.instance(ofAnother).Config); marks != theirs {
		t.Errorf("another's VM is marked: %+v", marks)
	}
}

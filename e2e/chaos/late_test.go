// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// lateBy is when it takes effect: later than the machine could be given back after the manager's timeout, and before
// the settle time is over.
const lateBy = 40 * time.Second

// MAAS executes a request after the client stopped waiting for the response, and the machine is to be given back
// meanwhile. It must not be deployed, nor get an address, after it was given back.
func TestNothingIsDoneLateToAMachineThatWasGivenBack(t *testing.T) {
	if attack.stalls == 0 {
		t.Skip("it takes longer than the manager waits for an answer")
	}
	for number, op := range []string{"link_subnet", "deploy"} {
		t.Run(op, func(t *testing.T) { givenBackTooEarly(t, op, number) })
	}
}

func givenBackTooEarly(t *testing.T, op string, number int) {
	ctx, name := t.Context(), fmt.Sprintf("late-%d", number)
	a := calm(t)
	key := client.ObjectKey{Namespace: namespace, Name: name}
	defer func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), attack.limit)
		defer cancel()
		if err := box.DeleteCluster(limited, key); err != nil {
			t.Error(err)
		}
		a.auditUntil(limited, "at the end", func(ctx context.Context) ([]audit.Finding, error) { return a.auditor.Gone(ctx, audit.Who{}) })
	}()
	late := &lateCall{op: op, asked: make(chan struct{}), done: make(chan struct{})}
	box.MAAS.ChooseFaults(late.choose)
	box.MAAS.SetHook(late.hook)
	if err := box.ApplyYAML(ctx, strings.NewReader(sandbox.Plain{Key: key}.Manifest())); err != nil {
		t.Fatal(err)
	}
	if err := a.meet(ctx, key); err != nil {
		t.Fatal(err)
	}
	m := member{Name: name + "-m1", Cluster: name, StaticIP: fmt.Sprintf("10.77.2.%d", 10+number)}
	if err := a.create(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := within(ctx, late.asked, "MAAS to be asked to "+op); err != nil {
		t.Fatal(err)
	}
	if err := a.remove(ctx, m.Name); err != nil {
		t.Fatal(err)
	}
	next, err := othersClient(box)
	if err != nil {
		t.Fatal(err)
	}
	theirs := lateTheft{late.systemID, nil}
	theirs.taken = take(ctx, next, theirs.systemID)
	if err := within(ctx, late.done, "MAAS to "+op); err != nil {
		t.Fatal(err)
	}
	if err := unharmed(ctx, next, theirs, m.StaticIP); err != nil {
		t.Error(err)
	}
}

// take has another user take a machine as soon as MAAS gives it, and returns where to wait for it.
func take(ctx context.Context, other *maas.Client, systemID string) <-chan error {
	taken := make(chan error, 1)
	go func() {
		limited, cancel := context.WithTimeout(ctx, attack.limit)
		defer cancel()
		taken <- sandbox.WaitFor(limited, "another user to get the machine", func() (bool, string, error) {
			_, err := other.AllocateMachine(limited, maas.Unrecorded("a test"), maas.AllocateParams{SystemID: systemID, AgentName: "theirs"})
			if errors.Is(err, maas.Conflict) {
				return false, err.Error(), nil
			}
			return err == nil, "", err
		})
	}()
	return taken
}

// unharmed checks that what another user took is as MAAS gave it, and gives it back.
func unharmed(ctx context.Context, other *maas.Client, theirs lateTheft, ours string) error {
	if err := <-theirs.taken; err != nil {
		return err
	}
	now, _ := box.MAAS.Machine(theirs.systemID)
	if now.Status != "Allocated" || slices.ContainsFunc(now.Addresses, func(a netip.Addr) bool { return a.String() == ours }) {
		return fmt.Errorf("the next user's machine is %s, with the addresses %v", now.Status, now.Addresses)
	}
	if _, err := other.ReleaseMachine(ctx, maas.UnrecordedRelease("a test"), theirs.systemID, maas.ReleaseParams{}); err != nil {
		return fmt.Errorf("the next user gives the machine back: %w", err)
	}
	return nil
}

// lateTheft is a machine that another user waits for.
type lateTheft struct {
	systemID string
	taken    <-chan error
}

// calm is an assault without faults.
func calm(t *testing.T) *assault {
	t.Helper()
	a := begin(t)
	box.MAAS.ClearFaults()
	return a
}

func within(ctx context.Context, happened <-chan struct{}, what string) error {
	limited, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	return sandbox.WaitFor(limited, what, func() (bool, string, error) {
		select {
		case <-happened:
			return true, "", nil
		default:
			return false, "not yet", nil
		}
	})
}

// lateCall makes MAAS execute the first call of an operation later than the manager waits for it.
type lateCall struct {
	op          string
	asked, done chan struct{}

	mutex    sync.Mutex
	number   int // of the call
	over     bool
	systemID string // set before asked is closed
}

func (l *lateCall) choose(call simulator.Call) *simulator.Fault {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if call.Op != l.op || l.number != 0 {
		return nil
	}
	l.number, l.systemID = call.Number, call.SystemID
	close(l.asked)
	return &simulator.Fault{Delay: simulator.Duration(lateBy)}
}

func (l *lateCall) hook(call simulator.Call, phase simulator.Phase) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if call.Number == l.number && phase == simulator.After && !l.over {
		l.over = true
		close(l.done)
	}
	return nil
}

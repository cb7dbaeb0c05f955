// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/e2e/ledger"
	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
)

//go:embed cluster.yaml
var clusterManifest []byte

// What is in cluster.yaml.
var clusterName = client.ObjectKey{Namespace: "default", Name: "demo"}

const (
	clusterMachines = 5
	clusterClass    = "clusterclass/clusterclass-capmaas.yaml"

	applyTimeout  = time.Minute
	createTimeout = 8 * time.Minute
	deleteTimeout = 4 * time.Minute
)

// options are what the flags say.
type options struct {
	once, keep bool
	timeScale  float64
}

var (
	errInterrupted = errors.New("interrupted")
	errLeftovers   = errors.New("something is left in MAAS")
)

// tell tells the story, and leaves nothing running.
func tell(ctx context.Context, out *screen, opts options) (err error) {
	steps := &steps{out: out}
	box, err := sandbox.Start(ctx, sandbox.Options{TimeScale: opts.timeScale, KeepFiles: opts.keep, Progress: steps.begin})
	steps.end()
	if err != nil {
		return interruptedOr(ctx, fmt.Errorf("starting the sandbox: %w", err))
	}
	defer func() {
		out.keep()
		if err != nil && !errors.Is(err, errInterrupted) {
			showTrouble(out, box)
		}
		if ctx.Err() != nil {
			out.print("", "Stopping")
		}
		if opts.keep {
			out.print("Logs are in " + box.LogDir)
		}
		if stopped := box.Stop(); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stopping the sandbox: %w", stopped))
		}
	}()
	s := &story{box: box, out: out, opts: opts, before: box.MAAS.State(), book: ledger.Open(box.MAAS)}
	defer s.book.Close()
	return interruptedOr(ctx, s.tell(ctx))
}

// interruptedOr is the error, unless it came about because the user wanted an end.
func interruptedOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// story is what happens to the cluster.
type story struct {
	box    *sandbox.Sandbox
	out    *screen
	opts   options
	before []byte // MAAS's state
	book   *ledger.Ledger

	begin, up, gone ledger.Mark
	came, went      time.Duration
}

func (s *story) tell(ctx context.Context) error {
	showing, stopShowing := context.WithCancel(ctx)
	defer stopShowing()
	var shown sync.WaitGroup
	defer shown.Wait()
	defer stopShowing()
	start := func() { shown.Go(func() { show(showing, s.out, s.box.Client, clusterName) }) }

	if err := s.create(ctx, start); err != nil {
		return err
	}
	if !s.opts.once {
		if err := s.invite(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	if err := s.delete(ctx); err != nil {
		return err
	}
	stopShowing()
	shown.Wait()
	s.out.keep()
	return s.report()
}

// create makes the cluster and waits until it is available and all machines run.
func (s *story) create(ctx context.Context, show func()) error {
	applying, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	s.begin = s.book.Mark()
	if err := s.box.ApplyFile(applying, clusterClass); err != nil {
		return fmt.Errorf("creating the ClusterClass: %w", err)
	}
	started := time.Now()
	if err := s.box.ApplyYAML(applying, bytes.NewReader(clusterManifest)); err != nil {
		return fmt.Errorf("creating the cluster: %w", err)
	}
	show()
	creating, cancel := s.bounded(ctx, createTimeout)
	defer cancel()
	if err := s.box.WaitAvailable(creating, clusterName, clusterMachines); err != nil {
		return err
	}
	s.came, s.up = time.Since(started), s.book.Mark()
	return nil
}

func (s *story) delete(ctx context.Context) error {
	deleting, cancel := s.bounded(ctx, deleteTimeout)
	defer cancel()
	started := time.Now()
	if err := s.box.DeleteCluster(deleting, clusterName); err != nil {
		return err
	}
	s.went, s.gone = time.Since(started), s.book.Mark()
	return nil
}

// bounded ends a wait after some time, and when something that should run has ended.
func (s *story) bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := s.box.Err(); err != nil {
					fail(err)
				}
			}
		}
	}()
	return ctx, func() { fail(nil); cancel() }
}

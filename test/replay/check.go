// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// Directory is the environment variable with the directory that gets what was replayed, a file for each package;
// hack/replay reads them.
const Directory = "CAPMAAS_REPLAY"

// Log is what was replayed of one object.
type Log struct {
	Test, Model, Object string
	Events              []Event
	// Meddles is why a difference is accepted; "" if it is not.
	Meddles string
}

// Check ends a run, after the manager has stopped. A test fails where its run left the models, unless it says why it
// may: meddles.
func (r *Run) Check(t testing.TB, meddles string) {
	t.Helper()
	defer r.Stop()
	logs, err := r.Logs(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Errorf("the run can't be held against the models: %v", err)
	}
	for i := range logs {
		logs[i].Test, logs[i].Meddles = t.Name(), meddles
		difference, _ := Of(logs[i].Model).Replay(logs[i].Object, logs[i].Events)
		switch {
		case difference != nil && meddles != "":
			t.Logf("accepted, as %s: %v", meddles, difference)
		case difference != nil:
			t.Error(difference)
		}
	}
	if err := keep(logs); err != nil {
		t.Error(err)
	}
}

var keeping sync.Mutex

// keep appends logs to the file of this package, if there is a directory for it.
func keep(logs []Log) error {
	dir := os.Getenv(Directory)
	if dir == "" || len(logs) == 0 {
		return nil
	}
	keeping.Lock()
	defer keeping.Unlock()
	file, err := os.OpenFile(filepath.Join(dir, filepath.Base(os.Args[0])+".jsonl"),
		os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keeping what was replayed: %w", err)
	}
	for _, log := range logs {
		if err := json.NewEncoder(file).Encode(log); err != nil {
			_ = file.Close()
			return fmt.Errorf("keeping what was replayed: %w", err)
		}
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("keeping what was replayed: %w", err)
	}
	return nil
}

// ReadLogs reads what runs have kept.
func ReadLogs(from io.Reader) (logs []Log, err error) {
	in := json.NewDecoder(bufio.NewReader(from))
	for {
		var log Log
		if err := in.Decode(&log); err == io.EOF {
			return logs, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what was replayed: %w", err)
		}
		logs = append(logs, log)
	}
}

//go:embed never.yaml
var never []byte

// NeverTaken returns the transitions that no run takes, for each model, and why.
func NeverTaken() (rows map[string]map[string]string, err error) {
	err = yaml.UnmarshalStrict(never, &rows)
	return rows, err
}

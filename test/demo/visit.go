// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// envFile is in the directory of a sandbox: what a shell needs to use it.
	envFile = "env.sh"
	// controlVariable leads to what no MAAS can do.
	controlVariable = "CAPMAAS_SANDBOX"
	// dirVariable is the directory that the sandbox was started in.
	dirVariable  = "CAPMAAS_SANDBOX_DIR"
	visitTimeout = 2 * time.Minute
)

// writeEnv writes the file that `demo env` prints.
func writeEnv(box *sandbox.Sandbox) error {
	return writeVariables(box.WorkDir(), [][2]string{
		{"KUBECONFIG", box.KubeconfigPath},
		{"HTTPS_PROXY", box.ProxyURL()}, // leads to the machines' addresses, and to everything else
		{"MAAS_ENDPOINT", box.MAASURL}, {"MAAS_API_KEY", box.MAASAPIKey},
		{"MAAS_DNS_DOMAIN", offeredDomain}, {"MAAS_IMAGE", uploadedPrefix + offeredImages[0]},
		{"CONTROL_PLANE_MACHINE_RESOURCEPOOL", resourcePool}, {"WORKER_MACHINE_RESOURCEPOOL", resourcePool},
		{controlVariable, box.ControlURL},
	})
}

func writeVariables(dir string, variables [][2]string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	variables = append(variables, [2]string{dirVariable, here})
	lines := "export PATH=" + quote(absolute("CAPMAAS_BIN")+":"+absolute("KUBEBUILDER_ASSETS")) + ":$PATH\n"
	for _, v := range variables {
		lines += "export " + v[0] + "=" + quote(v[1]) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, envFile), []byte(lines), 0o600); err != nil {
		return fmt.Errorf("writing the variables of the sandbox: %w", err)
	}
	return nil
}

// quote makes a text one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// choice is a sandbox that runs.
type choice struct{ env, control, dir string }

// choiceError says that there is not the one sandbox to act on, and which there are.
type choiceError struct {
	why    string
	others []choice
}

// Error returns why, and how to choose.
func (e *choiceError) Error() string {
	if len(e.others) == 0 {
		return e.why + "; start one with make demo"
	}
	lines := []string{e.why + "; choose one:"}
	for _, one := range e.others {
		lines = append(lines, fmt.Sprintf("  export %s=%s   # started in %s", controlVariable, one.control, one.dir))
	}
	return strings.Join(lines, "\n")
}

// running returns the sandbox that $CAPMAAS_SANDBOX names, or else the only one that was started in this directory. The
// error is a *choiceError if there is none, or more than one.
func running(ctx context.Context) (choice, error) {
	all, err := choices(ctx)
	if err != nil {
		return choice{}, err
	}
	here, err := os.Getwd()
	if err != nil {
		return choice{}, err
	}
	why, fits := "no sandbox runs that was started in "+here, func(c choice) bool { return c.dir == here }
	if named := os.Getenv(controlVariable); named != "" {
		why = "the sandbox of $" + controlVariable + ", " + named + ", does not run; unset the variable"
		fits = func(c choice) bool { return c.control == named }
	}
	found := list.Where(all, fits)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return choice{}, &choiceError{why, all}
	}
	return choice{}, &choiceError{"several sandboxes run that were started in " + here, found}
}

// choices returns the sandboxes that run, by their control APIs.
func choices(ctx context.Context) (all []choice, err error) {
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "capmaas-sandbox-*", envFile))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file) // Another user's can't be read.
		if err != nil {
			continue
		}
		one := choice{string(content), valueIn(string(content), controlVariable), valueIn(string(content), dirVariable)}
		if ask(ctx, http.MethodGet, one.control+"/time", "", nil) == nil {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b choice) int { return strings.Compare(a.control, b.control) })
	return all, nil
}

// valueIn returns the value of a variable in what writeVariables wrote.
func valueIn(env, variable string) string {
	_, rest, _ := strings.Cut(env, "export "+variable+"='")
	value, _, _ := strings.Cut(rest, "'\n")
	return strings.ReplaceAll(value, `'\''`, "'")
}

// visits are the commands for a sandbox that runs, as help shows them.
const visits = `  env         print the variables for a shell: eval "$(bin/demo env)"
  break NAME  switch a server off behind MAAS's back; if it is a VM host, with its VMs
  mend NAME   switch it on again`

// visit is one of them.
func visit(ctx context.Context, out io.Writer, words []string) error {
	does := map[string]int{"env": 1, "break": 2, "mend": 2}
	if does[words[0]] != len(words) {
		return fmt.Errorf("%q is none of:\n%s", strings.Join(words, " "), visits)
	}
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	box, err := running(ctx)
	if err != nil {
		return err
	}
	if words[0] == "env" {
		_, err = io.WriteString(out, box.env)
		return err
	}
	return breakOrMend(ctx, out, box.control, words[1], words[0] == "break")
}

// breakOrMend switches a server off or on behind MAAS's back. A VM host takes its VMs with it, and nobody reaches its
// LXD; both come back with it.
func breakOrMend(ctx context.Context, out io.Writer, control, name string, breaks bool) error {
	power, became := "on", "runs again"
	if breaks {
		power, became = "off", "has lost its power"
	}
	var hosts []simulator.VMHost
	if err := ask(ctx, http.MethodGet, control+"/vm-hosts", "", &hosts); err != nil {
		return err
	}
	change := func(name string, unnoticed bool) error {
		body := fmt.Sprintf(`{"power": %q, "unnoticed": %t}`, power, unnoticed)
		if err := ask(ctx, http.MethodPost, control+"/machines/"+url.PathEscape(name)+"/power", body, nil); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if err := change(name, false); err != nil {
		return err
	}
	at := slices.IndexFunc(hosts, func(h simulator.VMHost) bool { return h.Name == name })
	if at >= 0 {
		vms := list.Where(hosts[at].VMs, func(vm simulator.VM) bool { return vm.SystemID != "" })
		reach := func() error {
			return ask(ctx, http.MethodPost, control+"/vm-hosts/"+url.PathEscape(name),
				fmt.Sprintf(`{"unreachable": %t}`, breaks), nil)
		}
		var err error
		if !breaks {
			err = reach()
		}
		for _, vm := range vms {
			err = errors.Join(err, change(vm.SystemID, breaks)) // MAAS asks the LXD, which does not respond.
		}
		if breaks {
			err = errors.Join(err, reach())
		}
		if err != nil {
			return err
		}
		became += fmt.Sprintf(", with %d VM(s)", len(vms))
	}
	_, err := fmt.Fprintf(out, "%s %s. See: kubectl get maasmachines --all-namespaces\n", name, became)
	return err
}

var errNoSuch = errors.New("MAAS has no such machine")

// ask calls the simulated MAAS's control API, and reads what it responds, unless into is nil.
func ask(ctx context.Context, method, address, body string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case response.StatusCode == http.StatusNotFound:
		return errNoSuch
	case response.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("MAAS's simulator answers %s: %s", response.Status, strings.TrimSpace(string(text)))
	case err != nil || into == nil:
		return err
	}
	return json.Unmarshal(text, into)
}

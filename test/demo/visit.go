// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	// envFile is in the directory of a sandbox: what a shell needs to use it.
	envFile = "env.sh"
	// controlVariable leads to what no MAAS can do.
	controlVariable = "CAPMAAS_SANDBOX"
	visitTimeout    = 10 * time.Second
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

var errNoSandbox = errors.New("no sandbox runs here: start one with make demo")

// running returns the variables of the sandbox that was started last, and the URL of its control API.
func running(ctx context.Context) (env, control string, err error) {
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "capmaas-sandbox-*", envFile))
	if err != nil {
		return "", "", err
	}
	age := func(file string) time.Time {
		info, err := os.Stat(file)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(files, func(a, b string) int { return age(b).Compare(age(a)) })
	for _, file := range files {
		content, err := os.ReadFile(file) // Another user's can't be read.
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(content), controlVariable+"='")
		control, _, _ := strings.Cut(rest, "'")
		if ask(ctx, http.MethodGet, control+"/time", "") == nil {
			return string(content), control, nil
		}
	}
	return "", "", errNoSandbox
}

// visit is a command for a sandbox that runs: env, break NAME or mend NAME.
func visit(ctx context.Context, out io.Writer, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	env, control, err := running(ctx)
	switch {
	case err != nil:
		return err
	case len(words) == 1 && words[0] == "env":
		_, err = io.WriteString(out, env)
		return err
	case len(words) == 2 && words[0] == "break":
		return breakOrMend(ctx, out, control, words[1], true)
	case len(words) == 2 && words[0] == "mend":
		return breakOrMend(ctx, out, control, words[1], false)
	}
	return errors.New("there are: env, break NAME, mend NAME")
}

// breakOrMend switches a server off or on behind MAAS's back.
func breakOrMend(ctx context.Context, out io.Writer, control, name string, breaks bool) error {
	power, became := "on", "runs again"
	if breaks {
		power, became = "off", "has lost its power"
	}
	err := ask(ctx, http.MethodPost, control+"/machines/"+url.PathEscape(name)+"/power", fmt.Sprintf(`{"power": %q}`, power))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = fmt.Fprintf(out, "%s %s. See: kubectl get maasmachines --all-namespaces\n", name, became)
	return err
}

var errNoSuch = errors.New("MAAS has no such machine")

// ask calls the simulated MAAS's control API.
func ask(ctx context.Context, method, address, body string) error {
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
	}
	return err
}

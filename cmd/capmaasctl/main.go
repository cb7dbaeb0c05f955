// SPDX-License-Identifier: Apache-2.0

// Command capmaasctl is the operator's tool. It checks whether a node's LXD, its registration in MAAS, and MAAS itself
// are as the provider needs them, prints the remedy if not, and repairs a node with --apply. It also finds machines
// that were left over in MAAS (orphans); it plans where machines would go; it cordons LXDHosts, and empties them; it
// keeps machines of MAAS from being allocated; and it uploads images.
//
// Called as kubectl-capmaas it is `kubectl capmaas`; called as lxd-test, vmhost-test or maas-test, also with a suffix
// such as lxd-test-linux, it is one of its checks.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/homedir"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// version is set when the binary is built.
var version = "dev"

// Exit codes; they are part of the contract, and mean the same for each command.
const (
	exitOK     = 0 // it is as asked: nothing is left to do
	exitFailed = 1 // it is not, or that could not be found out
	exitUsage  = 2 // wrong usage: nothing was done
)

// surroundings are the inputs of a command other than its arguments.
type surroundings struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	home     string // the user's directory; "" if there is none
}

func main() {
	ctrllog.SetLogger(logr.Discard()) // Without a logger, controller-runtime prints a warning.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, surroundings{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv,
		home: homedir.HomeDir()})
	stop()
	os.Exit(code)
}

// run is the program; args begin with its own name.
func run(ctx context.Context, args []string, s surroundings) int {
	title, words := calledAs(args[0])
	p := &program{surroundings: s, title: title}
	root := p.root()
	root.SetArgs(append(append([]string{}, words...), args[1:]...)) // Without any, cobra would take those of the process.
	c, err := root.ExecuteContextC(ctx)
	if err != nil {
		fmt.Fprintf(s.err, "error: %v\nUsage: %s\nTry: %s --help\n", err, c.UseLine(), c.CommandPath())
		return exitUsage
	}
	return p.code
}

// calledAs returns what is typed to call the program, and the words that its name stands for.
func calledAs(path string) (title string, words []string) {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	for program, check := range map[string]string{"lxd-test": "lxd", "vmhost-test": "vm-host", "maas-test": "maas"} {
		if name == program || strings.HasPrefix(name, program+"-") {
			return "capmaasctl", []string{"check", check}
		}
	}
	switch name {
	case "kubectl-capmaas":
		return "kubectl capmaas", nil
	case "kubectl_complete-capmaas": // kubectl calls this for completion.
		return "kubectl capmaas", []string{"__complete"}
	}
	return "capmaasctl", nil
}

func versionCommand() command {
	return command{
		use: "version", short: "Print the version of this program",
		example: "version\nversion -o json",
		find: func(context.Context, options, surroundings) result {
			return versionReport{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		},
	}
}

// versionReport says which program this is. The JSON names are part of the output's contract.
type versionReport struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func (versionReport) good() bool { return true }

func (r versionReport) text(w io.Writer) error {
	_, err := fmt.Fprintf(w, "capmaasctl %s (%s, %s)\n", r.Version, r.GoVersion, r.Platform)
	return err
}

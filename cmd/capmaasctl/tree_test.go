// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// The overview fits on a screen, and says what each word does.
func TestOverview(t *testing.T) {
	got := call(t, "", nil, "capmaasctl", "--help").stdout
	golden.Compare(t, filepath.Join("testdata", "overview.txt"), got)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) > 26 {
		t.Errorf("it has %d lines, which fit on no screen", len(lines))
	}
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("%d columns fit on no screen: %s", len(line), line)
		}
	}
	_, root, _ := newProgram(surroundings{}, "capmaasctl")
	for _, c := range root.Commands() {
		if !strings.Contains(got, "  "+c.Name()+" ") {
			t.Errorf("the overview lacks %s", c.Name())
		}
	}
}

// everyCommand returns a command and all that are below it.
func everyCommand(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, below := range c.Commands() {
		all = append(all, everyCommand(below)...)
	}
	return all
}

// Each command says what it does, has an example that it accepts, and is in a group.
func TestEveryCommandIsDescribed(t *testing.T) {
	p, root, _ := newProgram(surroundings{}, "capmaasctl")
	titles := map[string]bool{"": true}
	for _, group := range groups {
		titles[group.ID] = true
	}
	for _, c := range everyCommand(root)[1:] {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || !unicode.IsUpper(rune((c.Short + " ")[0])) {
			t.Errorf("%s: %q is no line of help", c.CommandPath(), c.Short)
		}
		if top := c.Parent() == root; top != (c.GroupID != "") || !titles[c.GroupID] {
			t.Errorf("%s is in the group %q", c.CommandPath(), c.GroupID)
		}
		this := p.doers[c]
		if this == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", "..", "docs", this.page)); err != nil {
			t.Errorf("%s: %v", c.CommandPath(), err)
		}
		if (this.find == nil) == (this.act == nil) {
			t.Errorf("%s has find and act, or none", c.CommandPath())
		}
		if got := c.Flags().Lookup("output") != nil; got != (this.find != nil) {
			t.Errorf("%s has --output: %v", c.CommandPath(), got)
		}
		for _, line := range strings.Split(strings.TrimSpace(c.Example), "\n") {
			if !strings.HasPrefix(strings.TrimSpace(line), c.CommandPath()) {
				t.Errorf("%s: %q is no example of it", c.CommandPath(), line)
			}
		}
		for line := range strings.Lines(this.example) {
			line, _, _ = strings.Cut(line, "<")
			words := strings.Fields(strings.ReplaceAll(line, "'new disks'", "disks"))
			_, root, args := newProgram(surroundings{}, append([]string{"capmaasctl"}, words...)...)
			found, rest, err := root.Find(args)
			if err != nil || found.CommandPath() != c.CommandPath() {
				t.Errorf("%s: the example %q is of %s (%v)", c.CommandPath(), line, found.CommandPath(), err)
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			} else if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
		}
	}
}

// A flag has one meaning: what it is for, its type and its letter are the same wherever it is. Only its default may differ.
func TestAFlagHasOneMeaning(t *testing.T) {
	_, root, _ := newProgram(surroundings{}, "capmaasctl")
	type meaning struct{ usage, kind, letter string }
	known, letters := map[string]meaning{}, map[string]string{}
	for _, c := range everyCommand(root) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			is := meaning{f.Usage, f.Value.Type(), f.Shorthand}
			if before, seen := known[f.Name]; seen && before != is {
				t.Errorf("%s: --%s is %v, and elsewhere %v", c.CommandPath(), f.Name, is, before)
			}
			known[f.Name] = is
			if before := letters[f.Shorthand]; f.Shorthand != "" && before != "" && before != f.Name {
				t.Errorf("-%s is --%s, and elsewhere --%s", f.Shorthand, f.Name, before)
			}
			letters[f.Shorthand] = f.Name
			if !strings.HasSuffix(f.Usage, ".") {
				t.Errorf("--%s: %q is no sentence", f.Name, f.Usage)
			}
		})
	}
	if len(known) < 30 {
		t.Errorf("only %d flags were found", len(known))
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := call(t, "", nil, "capmaasctl", "completion", shell); got.code != exitOK || !strings.Contains(got.stdout, "__complete") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	for line, want := range map[string]string{
		"capmaasctl __complete ho":               "host\t",
		"capmaasctl __complete host d":           "drain\t",
		"capmaasctl __complete plan -o y":        "yaml",
		"capmaasctl __complete check lxd --stor": "--storage-pool\t",
		"kubectl_complete-capmaas image up":      "upload\t",
	} {
		if got := call(t, "", nil, strings.Fields(line)...); got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v, want %q", line, got, want)
		}
	}
}

// The shell offers the names of objects, in the namespace that the line names.
func TestCompletionOfNames(t *testing.T) {
	k := newKubernetes(t)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "names-of-a"}},
		&infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "names-of-a", Name: "our-c1"}, Spec: infrav1.MaasClusterSpec{DNSDomain: "maas"}},
		&infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "our-c2"}, Spec: infrav1.MaasClusterSpec{DNSDomain: "maas"}},
	} {
		if err := k.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"explain maascl":                               "maascluster\n",
		"explain cl":                                   "cluster\n",
		"explain maascluster our":                      "our-c2\n",
		"explain mc -n names-of-a our":                 "our-c1\n",
		"explain mc names-of-a/":                       "names-of-a/our-c1\n",
		"explain maascluster our-c2 our":               "",
		"explain nothing our":                          "",
		"host drain our":                               "",
		"plan upgrade our-c2 our":                      "",
		"explain mc --kubeconfig=/nowhere our":         "",
		"explain mc --context=another-one our":         "",
		"explain mc --namespace=names-of-nobody our-c": "",
	} {
		got := call(t, "", []string{"KUBECONFIG=" + k.kubeconfig}, strings.Fields("capmaasctl __complete "+line)...)
		words, _, _ := strings.Cut(got.stdout, ":4\n")
		if got.code != exitOK || words != want {
			t.Errorf("%s: %+v, want %q", line, got, want)
		}
	}
}

func TestFormats(t *testing.T) {
	for format, want := range map[string]string{"text": "capmaasctl dev (", "json": "{\n  \"version\": \"dev\",\n", "yaml": "version: dev\n"} {
		if got := call(t, "", nil, "capmaasctl", "version", "--output", format); got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v, want %q", format, got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"
)

// block is a piece of a document between fences.
type block struct{ document, language, text string }

var fencedBlock = regexp.MustCompile("(?ms)^[ >]*```(\\w+)[^\n]*\n(.*?)^[ >]*```")

func blocks(t *testing.T) (all []block) {
	t.Helper()
	for _, document := range documents(t) {
		for _, found := range fencedBlock.FindAllStringSubmatch(read(t, document), -1) {
			all = append(all, block{document, found[1], found[2]})
		}
	}
	return all
}

var (
	hereDocument = regexp.MustCompile(`(?ms)<<-?'?(\w+)'?(.*?)\n\s*\w+$`)
	quotedWord   = regexp.MustCompile(`(?s)'[^']*'|"[^"]*"`)
	separator    = regexp.MustCompile(`\n|&&|\|\||[|;()]|\$\(`)
	assignment   = regexp.MustCompile(`^[A-Z_][A-Z_0-9]*=`)
	comment      = regexp.MustCompile(`(?m)(^|\s)#.*$`)
)

// command is a program with its arguments, as a document calls it. What was quoted is Q.
type command struct {
	document string
	words    []string
}

func (c command) String() string { return c.document + ": " + strings.Join(c.words, " ") }

// inText are programs whose commands are looked for in the text, too.
var inText = regexp.MustCompile("^(?:sudo )?(?:bin/)?(?:kubectl|helm|clusterctl|capmaasctl) ")

// commands are those of the blocks sh, of the lines after "$ " in the blocks console, and those that the text quotes.
func commands(t *testing.T) (all []command) {
	t.Helper()
	for _, b := range blocks(t) {
		text := b.text
		switch b.language {
		case "sh":
		case "console":
			var typed []string
			for line := range strings.Lines(text) {
				if after, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
					typed = append(typed, after)
				}
			}
			text = strings.Join(typed, "\n")
		default:
			continue
		}
		for _, words := range split(text) {
			all = append(all, command{b.document, words})
		}
	}
	for _, document := range documents(t) {
		for _, found := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, document), ""), -1) {
			if inText.MatchString(found[1]) {
				for _, words := range split(found[1]) {
					all = append(all, command{document, words})
				}
			}
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d commands were found: the pattern is wrong", len(all))
	}
	return all
}

// split makes commands of a piece of shell, roughly: enough to see which programs are called with which flags.
func split(text string) (all [][]string) {
	text = hereDocument.ReplaceAllString(text, "$2")
	text = strings.ReplaceAll(text, "\\\n", " ")
	text = quotedWord.ReplaceAllStringFunc(text, func(q string) string {
		if strings.HasPrefix(q, `"`) && strings.Contains(q, "$(") {
			return q // a command in it
		}
		return "Q"
	})
	text = comment.ReplaceAllString(text, "")
	for _, one := range separator.Split(text, -1) {
		words := strings.Fields(one)
		for len(words) > 0 && (assignment.MatchString(words[0]) || slices.Contains([]string{"sudo", "exec", "time", "if", "then", "do", "!", "export"}, words[0])) {
			words = words[1:]
		}
		if len(words) > 0 {
			words[0] = strings.TrimPrefix(strings.TrimPrefix(words[0], "./"), "bin/")
			if len(words) > 1 && words[0] == "kubectl" && words[1] == "capmaas" {
				words = append([]string{"capmaasctl"}, words[2:]...) // It is the same program.
			}
			all = append(all, words)
		}
	}
	return all
}

// Make targets and variables in documents are those of the Makefile.
func TestMakeTargetsInDocumentsExist(t *testing.T) {
	included, err := filepath.Glob(filepath.Join("..", "hack", "make", "*.mk"))
	if err != nil {
		t.Fatal(err)
	}
	makefile := ""
	for _, file := range append(included, filepath.Join("..", "Makefile")) {
		makefile += read(t, file)
	}
	targets, variables := map[string]bool{}, map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^((?:[a-z][\w-]* ?)+):(?:[^=]|$)`).FindAllStringSubmatch(makefile, -1) {
		for _, target := range strings.Fields(found[1]) {
			targets[target] = true
		}
	}
	for _, found := range regexp.MustCompile(`\$[({]{1,2}(?:or )?\$?\(?([A-Z_]+)|(?m)^([A-Z_]+) [?:]?=`).FindAllStringSubmatch(makefile, -1) {
		variables[found[1]], variables[found[2]] = true, true
	}
	calls := 0
	check := func(from string, words []string) {
		calls++
		for i, word := range words {
			name, _, assigns := strings.Cut(word, "=")
			switch {
			case i > 0 && (words[i-1] == "-C" || words[i-1] == "-f"), strings.HasPrefix(word, "-"), word == "Q":
			case assigns && !variables[name]:
				t.Errorf("%s: make %s: the Makefile has no variable %s", from, strings.Join(words, " "), name)
			case !assigns && !targets[word]:
				t.Errorf("%s: make %s: the Makefile has no target %s", from, strings.Join(words, " "), word)
			}
		}
	}
	for _, c := range commands(t) {
		// image-builder has a Makefile of its own.
		if c.words[0] == "make" && !slices.ContainsFunc(c.words, func(word string) bool { return strings.HasPrefix(word, "build-maas-") }) {
			check(c.document, c.words[1:])
		}
	}
	for _, document := range documents(t) {
		for _, found := range regexp.MustCompile("`make ([^`]+)`").FindAllStringSubmatch(read(t, document), -1) {
			check(document, strings.Fields(quotedWord.ReplaceAllString(found[1], "Q")))
		}
	}
	if calls < 10 {
		t.Errorf("only %d calls of make were found: the pattern is wrong", calls)
	}
}

// Flavors in documents are templates, and what clusterctl is given with --from is there.
func TestFlavorsInDocumentsExist(t *testing.T) {
	known, calls := flavors(t), 0
	for _, document := range documents(t) {
		for _, found := range regexp.MustCompile(`--flavor[ =]([\w-]+)`).FindAllStringSubmatch(read(t, document), -1) {
			calls++
			if known[found[1]] == "" && found[1] != "NAME" {
				t.Errorf("%s names the flavor %s, which does not exist", document, found[1])
			}
		}
		for _, found := range regexp.MustCompile(`(?:--from|--filename|-f)[ =]((?:templates|clusterclass|docs)/[\w./-]+)`).FindAllStringSubmatch(read(t, document), -1) {
			calls++
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(found[1]))); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
	if calls < 5 {
		t.Errorf("only %d flavors and files were found: the pattern is wrong", calls)
	}
}

// clusterctl sees no provider that Helm has installed: a flavor needs its version, or a file.
func TestFlavorsInDocumentsWorkAfterHelm(t *testing.T) {
	calls := 0
	for _, c := range commands(t) {
		line := strings.ReplaceAll(strings.Join(c.words, " "), "=", " ")
		if !strings.HasPrefix(line, "clusterctl generate cluster ") {
			continue
		}
		calls++
		if !strings.Contains(line, " --from ") && !regexp.MustCompile(` --infrastructure maas:(v[0-9]|VERSION)`).MatchString(line) {
			t.Errorf("%s: it has neither --from nor --infrastructure maas:VERSION", c)
		}
	}
	if calls < 5 {
		t.Errorf("only %d calls were found: the pattern is wrong", calls)
	}
}

// chartValues are the chart's, with the names of its types.
func chartValues(t *testing.T) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join("..", "charts", "capmaas", "values.yaml"))), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// unknownValue finds the first part of a path that the chart does not have. Below lists, and objects that have no defaults, everything may be.
func unknownValue(values map[string]any, path []string) string {
	for i, name := range path {
		name, _, _ = strings.Cut(name, "[")
		value, known := values[name]
		if !known {
			return strings.Join(path[:i+1], ".")
		}
		below, isObject := value.(map[string]any)
		if !isObject || len(below) == 0 {
			return ""
		}
		values = below
	}
	return ""
}

// Chart values in documents exist: those of --set, those of blocks in YAML that hold nothing else, and those that the text quotes.
func TestChartValuesInDocumentsExist(t *testing.T) {
	values, seen := chartValues(t), 0
	check := func(document string, path []string) {
		seen++
		if unknown := unknownValue(values, path); unknown != "" {
			t.Errorf("%s: the chart has no value %s", document, unknown)
		}
	}
	for _, document := range documents(t) {
		page := read(t, document)
		for _, found := range regexp.MustCompile(`--set(?:-string|-file|-json)?[ =]["']?([a-zA-Z.\[\]\d]+)=`).FindAllStringSubmatch(page, -1) {
			check(document, strings.Split(found[1], "."))
		}
		for _, found := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
			name, _, _ := strings.Cut(strings.ReplaceAll(found[1], "=", ":"), ":")
			path := strings.Split(name, ".")
			// What begins like a value is one: not metadata.name, a file, nor an identifier of Go.
			below, isObject := values[path[0]].(map[string]any)
			if len(path) > 1 && isObject && len(below) > 0 && !strings.ContainsAny(name, "/ *") && unicode.IsLower(rune((path[1] + "A")[0])) {
				check(document, path)
			}
		}
	}
	for _, b := range valueBlocks(t, values) {
		for path := range b.paths {
			check(b.document, strings.Split(path, "."))
		}
	}
	if seen < 20 {
		t.Errorf("only %d values were found: the pattern is wrong", seen)
	}
}

type valueBlock struct {
	document string
	paths    map[string]bool
}

// valueBlocks are the blocks of YAML, in sh blocks too, whose first key is a value of the chart, and that are no Kubernetes objects.
func valueBlocks(t *testing.T, values map[string]any) (found []valueBlock) {
	t.Helper()
	for _, b := range blocks(t) {
		text := b.text
		if b.language == "sh" {
			inner := regexp.MustCompile(`(?ms)<<-?'?YAML'?[^\n]*\n(.*?)\nYAML$`).FindStringSubmatch(text)
			if inner == nil {
				continue
			}
			text = inner[1]
		} else if b.language != "yaml" {
			continue
		}
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			continue // several documents, or a fragment
		}
		paths := map[string]bool{}
		known := false
		for name, value := range object {
			_, isValue := values[name]
			known = known || isValue
			below, isObject := value.(map[string]any)
			paths[name] = true
			for inner := range below {
				if isObject {
					paths[name+"."+inner] = true
				}
			}
		}
		// lxdConfig and the like are fields of ours; nameless fragments are not values.
		if known && object["kind"] == nil {
			found = append(found, valueBlock{b.document, paths})
		}
	}
	return found
}

// program is one that documents call with flags. Its help says which ones it knows.
type program struct {
	path string
	// globals are the words that print the flags which all of its commands take.
	globals []string
}

// programs are ours, built anew, and those of others that make builds.
func programs(t *testing.T) map[string]program {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "./cmd/capmaasctl", "./cmd/manager", "./cmd/lxd-initializer")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building our programs: %v\n%s", err, out)
	}
	found := map[string]program{}
	for _, name := range []string{"capmaasctl", "manager", "lxd-initializer"} {
		found[name] = program{path: filepath.Join(dir, name)}
	}
	bin := os.Getenv("CAPMAAS_BIN")
	for name, p := range map[string]program{
		"clusterctl": {path: filepath.Join(bin, "clusterctl")},
		"helm":       {path: filepath.Join(bin, "helm")},
		"kubectl":    {path: filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), globals: []string{"options"}},
	} {
		if _, err := os.Stat(p.path); err != nil {
			t.Fatalf("%s is not there: `make test` builds it (%v)", name, err)
		}
		found[name] = p
	}
	return found
}

var flagInHelp = regexp.MustCompile(`(?m)(?:^|[\s,'])(--?[a-zA-Z][\w-]*)`)

// help returns what a program prints about a command. The second result reports whether it knows the command.
func (p program) help(t *testing.T, words ...string) (string, bool) {
	t.Helper()
	call := exec.CommandContext(t.Context(), p.path, words...)
	call.Env = []string{"HOME=" + t.TempDir(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}
	out, err := call.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

// flagsOf are the flags of a command of a program.
func (p program) flagsOf(t *testing.T, subcommands []string) (map[string]bool, bool) {
	t.Helper()
	text, known := p.help(t, append(slices.Clone(subcommands), "--help")...)
	if len(p.globals) > 0 {
		more, _ := p.help(t, p.globals...)
		text += more
	}
	flags := map[string]bool{"--help": true}
	for _, found := range flagInHelp.FindAllStringSubmatch(text, -1) {
		flags[found[1]] = true
	}
	return flags, known
}

// subcommands of programs, where there are any: how many of the words behind the program's name.
var depths = map[string]map[string]int{
	"capmaasctl": {"check": 2, "host": 2, "image": 2, "machines": 2, "orphans": 1, "plan": 2, "convert": 1, "completion": 2},
	"clusterctl": {"config": 2, "generate": 2, "describe": 2, "get": 2, "init": 1, "move": 1, "delete": 1, "upgrade": 2},
	"helm":       {"install": 1, "upgrade": 1, "test": 1, "rollback": 1, "uninstall": 1, "template": 1, "push": 1, "package": 1, "get": 2, "lint": 1},
	"kubectl":    {"rollout": 2, "auth": 2, "config": 2},
}

func TestCommandsAndFlagsInDocumentsExist(t *testing.T) {
	all := programs(t)
	t.Run("in blocks", func(t *testing.T) { checkCommands(t, all) })
	t.Run("in the text", func(t *testing.T) { checkFlags(t, all) })
}

// checkCommands: subcommands and flags of our programs, and of kubectl, helm and clusterctl, are ones that they have.
func checkCommands(t *testing.T, known map[string]program) {
	type answer struct {
		flags map[string]bool
		known bool
	}
	asked := map[string]answer{}
	calls := map[string]int{}
	for _, c := range commands(t) {
		name := c.words[0]
		p, there := known[name]
		if !there {
			continue
		}
		calls[name]++
		// Global flags may stand before the subcommand.
		words := slices.Clone(c.words[1:])
		var flags, plain []string
		for i := 0; i < len(words); i++ {
			word, _, hasValue := strings.Cut(words[i], "=")
			switch {
			case word == "--" || word == ">" || strings.HasPrefix(word, ">"):
				i = len(words)
			case strings.HasPrefix(word, "-") && len(word) > 1:
				flags = append(flags, word)
				if !hasValue && len(plain) == 0 && name != "capmaasctl" {
					i++ // its value
				}
			default:
				plain = append(plain, word)
			}
		}
		depth := 1
		if len(plain) > 0 && depths[name] != nil {
			depth = max(depths[name][plain[0]], 1)
		}
		subcommands := plain[:min(depth, len(plain))]
		if name == "kubectl" && len(plain) > 2 && plain[0] == "create" {
			subcommands = plain[:2]
			if plain[1] == "secret" {
				subcommands = plain[:3]
			}
		}
		key := name + " " + strings.Join(subcommands, " ")
		if _, before := asked[key]; !before {
			flags, ok := p.flagsOf(t, subcommands)
			asked[key] = answer{flags, ok}
		}
		if !asked[key].known {
			t.Errorf("%s: %s does not know %v", c, name, subcommands)
		}
		for _, flag := range flags {
			if !asked[key].flags[flag] {
				t.Errorf("%s: %s has no flag %s", c, key, flag)
			}
		}
	}
	for name := range known {
		if calls[name] == 0 && name != "manager" && name != "lxd-initializer" {
			t.Errorf("no document calls %s: the pattern is wrong", name)
		}
	}
}

// checkFlags: flags that the text quotes alone are ones of our programs, or of those that make builds.
func checkFlags(t *testing.T, all map[string]program) {
	known := map[string]bool{}
	for name, p := range all {
		lists := [][]string{nil}
		for sub := range depths[name] {
			lists = append(lists, []string{sub})
		}
		if name == "capmaasctl" { // Its reference has them all.
			for _, found := range regexp.MustCompile(`(?m)^## capmaasctl (.*)$`).FindAllStringSubmatch(read(t, "capmaasctl.md"), -1) {
				lists = append(lists, strings.Fields(found[1]))
			}
		}
		if name == "clusterctl" {
			lists = append(lists, []string{"generate", "cluster"}, []string{"describe", "cluster"}, []string{"generate", "provider"})
		}
		for _, sub := range lists {
			flags, _ := p.flagsOf(t, sub)
			for flag := range flags {
				known[flag] = true
			}
		}
	}
	for _, pattern := range []string{"../test/*/main.go", "../hack/*/main.go"} {
		sources, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			for _, found := range regexp.MustCompile(`Var\(&[\w.]+, "([\w-]+)"|\.(?:String|Bool|Int|Duration)\("([\w-]+)"`).FindAllStringSubmatch(read(t, source), -1) {
				known["--"+found[1]+found[2]] = true
			}
		}
	}
	seen := 0
	for _, document := range documents(t) {
		for _, found := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, document), ""), -1) {
			if flag := regexp.MustCompile(`^--[a-z][\w-]+`).FindString(found[1]); flag != "" {
				seen++
				if !known[flag] {
					t.Errorf("%s: `%s`: no program has the flag %s", document, found[1], flag)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d flags were found: the pattern is wrong", seen)
	}
}

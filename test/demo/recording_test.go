// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/xml"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capmaas/cluster-api-provider-maas/test/figures"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

var update = flag.Bool("update", false, "write the recording anew")

const (
	// columns and rows are those of the terminal in the recording.
	columns, rows = 104, 36
	// pictureEvery is the time between two pictures, and shownFor how long each is shown; endShownFor the last one.
	pictureEvery, shownFor, endShownFor = 10 * time.Second, 1500 * time.Millisecond, 10 * time.Second
)

// The recording in README tells what the demo tells, and figures that the manager is held to.
func TestTheRecordingIsUpToDate(t *testing.T) {
	checkRecording(t, filepath.Join("..", "..", "docs", "images", "demo.svg"))
}

// A run is like the recording. With -update it becomes the recording.
func TestTheDemoIsRecorded(t *testing.T) {
	if os.Getenv("CAPMAAS_DEMO") == "" {
		t.Skip("CAPMAAS_DEMO is not set: the demo takes minutes (`make recording` runs it)")
	}
	if err := lxd.Missing(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	t.Chdir(filepath.Join("..", ".."))
	path := filepath.Join(t.TempDir(), "demo.svg")
	if *update {
		path = filepath.Join("docs", "images", "demo.svg")
	}
	pictures, err := record(t.Context(), options{once: true, timeScale: 60})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(pictures[len(pictures)-1], "\n"))
	}
	if err := os.WriteFile(path, []byte(drawing(pictures)), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRecording(t, path)
}

func checkRecording(t *testing.T, path string) {
	t.Helper()
	pictures := picturesOf(t, path)
	if len(pictures) < 10 {
		t.Fatalf("%s has %d pictures, which are no recording", path, len(pictures))
	}
	s := &story{opts: options{once: true}, controlPlanes: 3, lxd: lxdCalls{}}
	s.hosts = &hosts{story: s}
	for _, chapter := range s.chapters() {
		if !slices.ContainsFunc(pictures, func(picture []string) bool { return slices.Contains(picture, chapter.caption) }) {
			t.Errorf("%s lacks the caption %q", path, chapter.caption)
		}
	}
	want := s.figures(ledger.Account{}, ledger.Account{}, ledger.Account{}, 0)
	want = append(append(want, left("Left in MAAS:           ", nil)...), left("Left in LXD:            ", nil)...)
	end := pictures[len(pictures)-1]
	end = end[max(0, len(end)-len(want)):]
	for i, line := range want {
		if i >= len(end) || label(end[i]) != label(line) {
			t.Fatalf("the end of %s is\n%s\nand that of the demo\n%s", path, strings.Join(end, "\n"), strings.Join(want, "\n"))
		}
		checkFigures(t, end[i])
	}
}

// label is a line without its figures.
func label(line string) string { return regexp.MustCompile(`\d.*`).ReplaceAllString(line, "") }

// checkFigures compares a line of the report with what each machine may cost.
func checkFigures(t *testing.T, line string) {
	t.Helper()
	all, err := figures.All()
	if err != nil {
		t.Fatal(err)
	}
	for words, subject := range map[string]string{"for each LXD VM": "VM", "for each bare metal": "bare metal"} {
		if !strings.Contains(line, words) {
			continue
		}
		found := regexp.MustCompile(`(\d+) to (?:(\d+) to )?(?:create|delete|release)`).FindAllStringSubmatch(line, -1)
		if len(found) != 2 {
			t.Fatalf("%q has not the figures of two things", line)
		}
		for i, figure := range []string{"create maas", "delete maas"} {
			for _, count := range found[i][1:] {
				got, err := strconv.Atoi(count)
				// Where LXD is real, MAAS may be read once more.
				if may := all[subject][figure]; count != "" && (err != nil || got < may[0] || got > may[1]+1) {
					t.Errorf("%q: %s is %s, and in figures.yaml %v", line, figure, count, may)
				}
			}
		}
	}
}

// record plays the story in a terminal, and returns what that showed every now and then.
func record(ctx context.Context, opts options) (pictures [][]string, err error) {
	terminal, program, err := openTerminal()
	if err != nil {
		return [][]string{nil}, err
	}
	defer terminal.Close()
	watched := make(chan [][]string)
	go func() { watched <- watch(terminal) }()
	out := newScreen(program)
	err = runStory(ctx, out, opts)
	out.close()
	_ = program.Close() // It ends the watch.
	return <-watched, err
}

// openTerminal returns both ends of a terminal.
func openTerminal() (terminal, program *os.File, err error) {
	terminal, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(terminal.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return terminal, program, err
}

// watch reads what a screen writes, until it is closed.
func watch(terminal *os.File) (pictures [][]string) {
	seen, buffer := &tape{lines: []string{""}}, make([]byte, 1<<16)
	for last := time.Now(); ; {
		n, err := terminal.Read(buffer)
		text := string(buffer[:n])
		if strings.HasPrefix(text, "\r\x1b[") && time.Since(last) >= pictureEvery { // what was painted is whole
			pictures, last = append(pictures, seen.picture()), time.Now()
		}
		seen.write(text)
		if err != nil {
			return append(pictures, seen.picture())
		}
	}
}

// tape is what a terminal shows, with the codes of colors: a screen writes whole lines, and goes up to where one begins.
type tape struct {
	lines []string
	at    int
	rest  string // a code that is not complete
}

var code = regexp.MustCompile(`^(?:\r?\x1b\[(\??\d*)([A-Za-z])|\r?\n|[^\r\n\x1b]+)`)

func (s *tape) write(text string) {
	s.rest += text
	for {
		found := code.FindStringSubmatch(s.rest)
		if found == nil {
			return
		}
		s.rest = s.rest[len(found[0]):]
		switch {
		case found[2] == "A":
			up, _ := strconv.Atoi(found[1])
			s.at = max(0, s.at-up)
			s.lines[s.at] = ""
		case found[2] == "J":
			s.lines = append(s.lines[:s.at:s.at], s.lines[s.at])
		case found[2] == "m" || found[2] == "" && !strings.HasSuffix(found[0], "\n"):
			s.lines[s.at] += strings.TrimPrefix(found[0], "\r")
		case found[2] == "":
			if s.at++; s.at == len(s.lines) {
				s.lines = append(s.lines, "")
			}
			s.lines[s.at] = ""
		}
	}
}

// picture is what can be seen.
func (s *tape) picture() []string {
	return slices.Clone(s.lines[max(0, len(s.lines)-rows):])
}

// drawing is pictures as an animated SVG.
func drawing(pictures [][]string) string {
	pictures = slices.CompactFunc(pictures, slices.Equal)
	total := time.Duration(len(pictures)-1)*shownFor + endShownFor
	percent := func(i int) float64 { return 100 * float64(time.Duration(i)*shownFor) / float64(total) }
	width, height := columns*8+32, rows*18+64
	var b strings.Builder
	fmt.Fprintf(&b, `<!-- Recorded by make recording: one picture for each %s of a run with real LXD daemons. -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[2]d %[3]d" width="%[2]d" height="%[3]d" role="img" aria-labelledby="t d">
<title id="t">A run of the demo</title>
<desc id="d">Three bare-metal machines are deployed and become LXD VM hosts; a cluster gets three control planes as VMs on them and two bare-metal workers; both are deleted, and nothing is left in MAAS and LXD.</desc>
<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#d7dae0}
.c1{fill:#ffffff;font-weight:bold}.c2{fill:#8b949e}.c31{fill:#ff8f87}.c32{fill:#6bd28a}.c33{fill:#e9c46a}
.f{opacity:0}.f:last-of-type{opacity:1}
@media (prefers-reduced-motion:no-preference){.f:last-of-type{opacity:0}
`, pictureEvery, width, height)
	for i := range pictures {
		until := percent(i + 1)
		if i == len(pictures)-1 {
			until = 100
		}
		fmt.Fprintf(&b, "@keyframes k%[1]d{0%%{opacity:0}%.2[2]f%%{opacity:1}%.2[3]f%%,100%%{opacity:%[4]d}}#f%[1]d{animation:k%[1]d %.1[5]fs step-end infinite}\n",
			i, percent(i), until, i/(len(pictures)-1), total.Seconds())
	}
	fmt.Fprintf(&b, `}</style>
<rect width="%d" height="%d" rx="8" fill="#1b1f24"/><circle cx="20" cy="18" r="5" fill="#ff5f57"/><circle cx="38" cy="18" r="5" fill="#febc2e"/><circle cx="56" cy="18" r="5" fill="#28c840"/>
<text x="16" y="42"><tspan class="c32">$</tspan> make demo DEMO_ARGS=--once</text>
`, width, height)
	for i, picture := range pictures {
		fmt.Fprintf(&b, "<g class=\"f\" id=\"f%d\">\n", i)
		for row, line := range picture {
			if line != "" {
				fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", 66+18*row, colored(line))
			}
		}
		b.WriteString("</g>\n")
	}
	return b.String() + "</svg>\n"
}

var piece = regexp.MustCompile(`\x1b\[([1-9]\d*)m(.*?)\x1b\[0m`)

// colored makes the codes of colors classes.
func colored(line string) string {
	return piece.ReplaceAllString(html.EscapeString(line), `<tspan class="c$1">$2</tspan>`)
}

// picturesOf reads a drawing.
func picturesOf(t *testing.T, path string) (pictures [][]string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Groups []struct {
			Lines []struct {
				Inner string `xml:",innerxml"`
			} `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(content, &found); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, group := range found.Groups {
		var picture []string
		for _, line := range group.Lines {
			picture = append(picture, html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(line.Inner, "")))
		}
		pictures = append(pictures, picture)
	}
	return pictures
}

// A picture shows what a terminal would, and its drawing has the same text.
func TestWhatIsPaintedIsDrawn(t *testing.T) {
	seen := &tape{lines: []string{""}}
	for _, part := range []string{hideCursor, "one\r\n", "fra", "me\x1b[", "K\r\nold" + clearRight + "\r\n", "\r\x1b[2A\x1b[32m<new>\x1b[0m" + clearRight + "\r\n" + clearDown} {
		seen.write(part)
	}
	if want := []string{"one", "\x1b[32m<new>\x1b[0m", ""}; !slices.Equal(seen.picture(), want) {
		t.Errorf("the picture is %q, want %q", seen.picture(), want)
	}
	path := filepath.Join(t.TempDir(), "demo.svg")
	if err := os.WriteFile(path, []byte(drawing([][]string{{"first"}, seen.picture()})), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := picturesOf(t, path); len(got) != 2 || !slices.Equal(got[1], []string{"one", "<new>"}) {
		t.Errorf("drawn is %q", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/term"
)

// style is the SGR parameter that a text is shown with in a terminal that has colors.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// text is a piece of a line.
type text struct {
	string
	style style
}

// line is shown in one line of the terminal, or more where it is wider.
type line []text

// screen writes lines, and, in a terminal, repaints a frame below them. It is safe for concurrent use.
type screen struct {
	file            *os.File
	terminal, color bool

	mutex  sync.Mutex
	frame  []line
	drawn  []string // lines of the terminal that the frame occupies now
	closed bool
}

const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearDown  = "\x1b[J"
	clearRight = "\x1b[K"
)

func newScreen(file *os.File) *screen {
	s := &screen{file: file}
	s.terminal = term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
	s.color = s.terminal && os.Getenv("NO_COLOR") == ""
	if s.terminal {
		s.write(hideCursor)
	}
	return s
}

// print writes lines that stay, above the frame. They are not cut off.
func (s *screen) print(lines ...string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	erased := s.top()
	if erased != "" {
		erased += clearDown
	}
	s.drawn = s.render()
	s.write(erased + strings.Join(lines, "\n") + "\n" + strings.Join(s.drawn, ""))
}

// paint replaces the frame. Without a terminal there is none.
func (s *screen) paint(frame []line) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed || !s.terminal {
		return
	}
	s.frame = frame
	lines := s.render()
	if slices.Equal(lines, s.drawn) {
		return
	}
	// Each line is written over the old one, so that nothing flickers.
	s.write(s.top() + strings.Join(lines, "") + clearDown)
	s.drawn = lines
}

// keep leaves the frame above the following output.
func (s *screen) keep() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.frame, s.drawn = nil, nil
}

// close leaves the terminal as it was. The last frame stays.
func (s *screen) close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.frame, s.drawn = nil, nil
	if s.terminal {
		s.write(showCursor)
	}
}

// top moves the cursor to where the frame begins.
func (s *screen) top() string {
	if len(s.drawn) == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA", len(s.drawn))
}

// render makes the lines of the frame that the terminal has room for.
func (s *screen) render() []string {
	if len(s.frame) == 0 {
		return nil
	}
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil || width <= 0 || height <= 1 {
		width, height = 80, 24
	}
	var lines []string
	for _, l := range s.frame {
		for _, part := range l.render(width, s.color) {
			lines = append(lines, part+clearRight+"\n")
		}
	}
	return lines[:min(len(lines), height-1)]
}

// indent is where a line goes on that is wider than the terminal.
const indent = "    "

// render makes a line as lines of the terminal: it goes on in the next one where a piece, or else a word, does not fit.
func (l line) render(width int, color bool) []string {
	var lines []string
	var out strings.Builder
	width = max(width, 2*len(indent))
	left := width
	end := func() {
		lines = append(lines, strings.TrimRight(out.String(), " "))
		out.Reset()
		out.WriteString(indent)
		left = width - len(indent)
	}
	for _, piece := range l {
		rest := []rune(strings.Map(printable, piece.string))
		for len(rest) > 0 {
			if len(lines) > 0 && left == width-len(indent) {
				rest = []rune(strings.TrimLeft(string(rest), " "))
			}
			part := rest
			if needed := len([]rune(strings.TrimSpace(string(rest)))); needed > left {
				if left <= 0 || left < width-len(indent) && needed <= width-len(indent) {
					end()
					continue
				}
				part = rest[:fitting(rest, left)]
			}
			rest = rest[len(part):]
			part = part[:min(len(part), left)]
			left -= len(part)
			if color && piece.style != plain {
				fmt.Fprintf(&out, "\x1b[%sm%s\x1b[0m", piece.style, string(part))
			} else {
				out.WriteString(string(part))
			}
			if len(rest) > 0 {
				end()
			}
		}
	}
	return append(lines, strings.TrimRight(out.String(), " "))
}

// fitting returns how much of a text fits into a width: whole words, or, if the first is too long, a part of it.
func fitting(text []rune, width int) int {
	width = max(width, 1)
	for at := min(width, len(text)-1); at > 0; at-- {
		if text[at] == ' ' {
			return at + 1
		}
	}
	return min(width, len(text))
}

// printable keeps what would move the cursor out of a line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func (s *screen) write(text string) {
	// A terminal that is gone is no reason to fail.
	_, _ = s.file.WriteString(text)
}

// table lays out rows in columns that are as wide as their widest cell; the last one is not padded.
func table(rows []line) []line {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell.string)))
		}
	}
	out := make([]line, 0, len(rows))
	for _, row := range rows {
		padded := slices.Clone(row)
		for i := range padded[:len(padded)-1] {
			padded[i].string += strings.Repeat(" ", widths[i]-len([]rune(padded[i].string))+2)
		}
		out = append(out, padded)
	}
	return out
}

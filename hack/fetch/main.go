// SPDX-License-Identifier: Apache-2.0

// Command fetch downloads official releases of tools, and hack/tools/build.sh calls it. It runs nothing that has not the
// checksum that hack/tools/releases pins: one that is read from the server beside the file proves nothing about a server
// that lies. With --pin it writes that file, of what the projects publish.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	pins := flag.String("pins", "hack/tools/releases", "file with the checksums")
	pin := flag.Bool("pin", false, "read TOOL VERSION from each line of the input, and write the file")
	mirror := flag.String("mirror", "", "base address of a server that has https://HOST/PATH as HOST/PATH")
	flag.Parse()
	var err error
	f := newFetcher(*mirror)
	if *pin {
		err = f.pin(ctx, os.Stdin, *pins)
	} else {
		err = f.installAll(ctx, *pins, flag.Args(), os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

// platform is this computer's.
const platform = runtime.GOOS + "/" + runtime.GOARCH

// pinned is a line of the file: TOOL VERSION OS/ARCH SHA256.
type pinned struct {
	tool, version, platform, sum string
}

func (p pinned) String() string {
	return strings.Join([]string{p.tool, p.version, p.platform, p.sum}, " ")
}

// readPins reads the file.
func readPins(file string) (pins []pinned, err error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	lines := bufio.NewScanner(opened)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 4 && fields[0] != "#" {
			pins = append(pins, pinned{fields[0], fields[1], fields[2], fields[3]})
		}
	}
	return pins, lines.Err()
}

// find returns the pin of a tool in a version for this computer.
func find(pins []pinned, tool, version string) (pinned, bool) {
	for _, p := range pins {
		if p.tool == tool && p.version == version && p.platform == platform {
			return p, true
		}
	}
	return pinned{}, false
}

// installAll installs what requests name, as TOOL=VERSION=PATH, and prints the pins of what it installed. It leaves out what is
// not pinned. Where one can't be downloaded, the others are not tried either: what is missing has to be built.
func (f *fetcher) installAll(ctx context.Context, file string, requests []string, installed io.Writer) error {
	pins, err := readPins(file)
	if err != nil {
		return err
	}
	for i, request := range requests {
		parts := strings.SplitN(request, "=", 3)
		if len(parts) != 3 {
			return fmt.Errorf("%q is not TOOL=VERSION=PATH", request)
		}
		p, ok := find(pins, parts[0], parts[1])
		if !ok {
			continue
		}
		err := f.install(ctx, p, parts[2])
		if away := (*awayError)(nil); errors.As(err, &away) {
			fmt.Fprintf(f.log, "  building from source: %v\n", err)
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(f.log, "  %-24s downloaded, verified  (%d of %d)\n", p.tool, i+1, len(requests))
		fmt.Fprintln(installed, p)
	}
	return nil
}

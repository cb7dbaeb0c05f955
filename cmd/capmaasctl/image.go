// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/images"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// uploadImage has no timeout: only the calls have, and a person sees how far it is.
func uploadImage(ctx context.Context, o options, s surroundings) int {
	file, size, err := openImage(o.object)
	if err != nil {
		return s.end(err)
	}
	defer file.Close()
	client, err := maas.NewClient(o.maas)
	if err != nil {
		return s.end(err)
	}
	shown := newMeter(s.err, "reading", size)
	digest, size, err := images.Digest(ctx, file, shown.at)
	shown.done()
	if err != nil {
		return s.end(fmt.Errorf("reading %s: %w; nothing was sent", o.object, err))
	}
	shown = newMeter(s.err, "uploading", size)
	result, err := images.NewService(client).Ensure(ctx,
		maas.Unrecorded("a person runs it, and can run it again: it finds out what MAAS has"), file, images.Upload{
			CreateImageParams: maas.CreateImageParams{
				Name: o.image.name, Title: o.image.title, Architecture: o.image.architecture, BaseImage: o.image.base,
				FileType: o.image.fileType, SHA256: digest, Size: size,
			},
			Replace: o.image.replace, Restart: o.image.restart,
		}, shown.at)
	shown.done()
	if err != nil {
		return s.endImage(err)
	}
	s.say("image/"+result.Image.DeployName(), result.Already,
		fmt.Sprintf("uploaded (%s, %s, sha256 %s)", o.image.architecture, bytesOf(size), digest))
	if result.Resumed > 0 && !result.Already {
		fmt.Fprintf(s.err, "MAAS had %s of it already.\n", bytesOf(result.Resumed))
	}
	if result.Syncing {
		fmt.Fprintln(s.err, "MAAS's other region controllers still copy it: machines can be deployed with it when "+
			"`capmaasctl image check` says so.")
	}
	return exitOK
}

func openImage(name string) (*os.File, int64, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file: name the image's file", name)
	case info.Size() == 0:
		err = fmt.Errorf("%s is empty: name the image's file", name)
	default:
		return file, info.Size(), nil
	}
	return nil, 0, errors.Join(err, file.Close())
}

// endImage returns the exit code for an error of an upload, which it prints with its remedy.
func (s surroundings) endImage(err error) int {
	found, remedy := explainImage(err)
	fmt.Fprintf(s.err, "error: %s\n", found)
	if remedy != "" {
		fmt.Fprintf(s.err, "  -> %s\n", remedy)
	}
	return exitFailed
}

// explainImage returns the meaning of an error of pkg/maas/images, and the remedy.
func explainImage(err error) (found, remedy string) {
	var other *images.OtherContentError
	var architecture *images.ArchitectureError
	var shared *images.SharedFileError
	var piece *images.PieceError
	var paused *images.PausedError
	var incomplete *images.IncompleteError
	var missing *machine.ImageError
	var answer *maas.Error
	switch {
	case errors.As(err, &other) && other.Complete:
		return other.Error(), "give it another name, for example with its version; with --replace MAAS drops the old file " +
			"at once, and " +
			"no machine can be deployed with the image until the new one is there"
	case errors.As(err, &other):
		return other.Error(), "wait, if somebody uploads it right now; otherwise --replace drops it"
	case errors.As(err, &architecture):
		return architecture.Error(), "put the architecture into the names, or upgrade MAAS to 3.6.3 or 3.7.1"
	case errors.As(err, &shared):
		return shared.Error(), "use that image"
	case errors.As(err, &piece):
		return piece.Error(), "make sure that MAAS's disk has room, and that nobody else uploads it; then run the command " +
			"again with --restart"
	case errors.As(err, &paused):
		return paused.Error(), "run the same command again: it goes on there"
	case errors.As(err, &incomplete):
		return incomplete.Error(), "finish the upload with `capmaasctl image upload`; or wait until MAAS has synced it to " +
			"all region controllers"
	case errors.As(err, &missing):
		return missing.Error(), "`capmaasctl image list` shows what MAAS has"
	case maas.InvalidField(err, "architecture"):
		return maas.Message(err), "MAAS takes the architectures for which it has synced an Ubuntu"
	case errors.As(err, &answer) && answer.Kind == maas.Invalid:
		return "MAAS refuses it: " + answer.Message, ""
	}
	return maas.Explain(err)
}

// bytesOf shows a size.
func bytesOf(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// meter shows how far something is: in one line of a terminal, or in a line for each tenth.
type meter struct {
	to       io.Writer
	what     string
	whole    int64
	terminal bool
	step     int64 // in percent
	last     int64
	any      bool
}

func newMeter(to io.Writer, what string, whole int64) *meter {
	p := &meter{to: to, what: what, whole: whole, step: 10, last: -1}
	if file, ok := to.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if p.terminal {
		p.step = 1
	}
	return p
}

func (p *meter) at(n int64) {
	percent := 100 * n / max(p.whole, 1)
	if percent/p.step == p.last {
		return
	}
	p.last, p.any = percent/p.step, true
	if p.terminal {
		fmt.Fprintf(p.to, "\r%s: %s of %s (%d %%)   ", p.what, bytesOf(n), bytesOf(p.whole), percent)
		return
	}
	fmt.Fprintf(p.to, "%s: %s of %s (%d %%)\n", p.what, bytesOf(n), bytesOf(p.whole), percent)
}

// done ends the line.
func (p *meter) done() {
	if p.terminal && p.any {
		fmt.Fprintln(p.to)
	}
}

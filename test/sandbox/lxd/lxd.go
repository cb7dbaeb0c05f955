// SPDX-License-Identifier: Apache-2.0

// Package lxd runs real LXD daemons for tests, each on a node of its own: network, mount and process namespaces with a
// bridge that has the node's address. Nothing of a daemon outlives the program that started it. When that program is
// killed, the daemon's directory stays until the next daemon is started.
package lxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/played"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

const (
	defaultBridge = "br0"
	defaultCard   = "eth0"
	// parent is not os.TempDir(): the shorter LXD_DIR is, the longer may the names of VMs be. The snap's has 24 bytes.
	parent = "/tmp"
)

// defaultAddress is the address of a virtual machine in QEMU's user network.
var defaultAddress = netip.MustParsePrefix("10.0.2.15/24")

// Options of Start. All have defaults.
type Options struct {
	// LogFile is the daemon's log. Default: a file in the daemon's directory, which Stop removes.
	LogFile string
	// Bridge is the name of the Linux bridge in the node's network. Default: br0.
	Bridge string
	// Address is the node's own, on the bridge. Default: 10.0.2.15/24.
	Address netip.Prefix
	// Card is the name of the network card in the bridge. Default: eth0.
	Card string
	// MAC of the bridge and of the card. Default: the kernel's choice.
	MAC string
	// Boots gives virtual machines real firmware, with which they boot their disks, in software: on amd64 alone, with
	// Debian's package ovmf. Default: they halt at once.
	Boots bool
	// Plays is the version that the daemon plays, such as 6.9: see Play. Default: that in PlaysVariable, or its own.
	Plays string
	// Proxy returns the address of an HTTP proxy of this computer, by which LXD reaches others' images. Default: none.
	Proxy func() string
}

// PlaysVariable has the version that daemons play.
const PlaysVariable = "CAPMAAS_LXD_PLAYED"

// nodeProxy is where a node has it.
const nodeProxy = "127.0.0.1:3128"

// Daemon is an LXD daemon with its node.
type Daemon struct {
	options Options
	program string
	base    string
	lock    *os.File // of base

	// mu is held by whatever starts or ends things.
	mu     sync.Mutex
	node   *node
	daemon *process.Process
	// played is before the daemon, or nil. It leads the clients that trusted knows.
	played  *played.Proxy
	trusted *played.Store
	// removed is for good.
	removed bool
}

// programVariable has the path of another LXD than the one in PATH.
const programVariable = "CAPMAAS_LXD"

func program() string { return cmp.Or(os.Getenv(programVariable), "lxd") }

// Start runs a daemon and returns when LXD is ready.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	program, err := exec.LookPath(program())
	if err != nil {
		return nil, fmt.Errorf("looking for LXD: %w", err)
	}
	d := &Daemon{options: o, program: program}
	if err := d.makeDirs(); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	if err := d.Restart(ctx); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// makeDirs makes the daemon's directories, with the programs that stand in for the node's, and sets the defaults.
func (d *Daemon) makeDirs() error {
	removeStale()
	base, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return fmt.Errorf("making the directory of LXD: %w", err)
	}
	d.base = base
	if d.lock, err = lock(base); err != nil {
		return err
	}
	// Containers without privileges walk through both.
	if err := errors.Join(os.Chmod(base, 0o711), os.Mkdir(d.Dir(), 0o711)); err != nil {
		return fmt.Errorf("making the directory of LXD: %w", err)
	}
	if d.options.Plays = cmp.Or(d.options.Plays, os.Getenv(PlaysVariable)); d.options.Plays != "" {
		if d.trusted, err = played.NewStore(); err != nil {
			return err
		}
	}
	d.options.LogFile = cmp.Or(d.options.LogFile, filepath.Join(base, "lxd.log"))
	d.options.Bridge, d.options.Card = cmp.Or(d.options.Bridge, defaultBridge), cmp.Or(d.options.Card, defaultCard)
	if !d.options.Address.IsValid() {
		d.options.Address = defaultAddress
	}
	if os.Getenv(programVariable) != "" {
		err = writeVirtiofsd(d.shims())
	}
	return errors.Join(err, WriteShims(d.shims()))
}

// Socket returns the path of the unix socket, which is reachable from anywhere on this machine.
func (d *Daemon) Socket() string { return filepath.Join(d.Dir(), "unix.socket") }

// Dir is LXD_DIR.
func (d *Daemon) Dir() string { return filepath.Join(d.base, "d") }

func (d *Daemon) shims() string { return filepath.Join(d.base, "bin") }

// ownSocket returns the path of the socket on which the daemon itself listens.
func (d *Daemon) ownSocket() string {
	if d.trusted != nil {
		return filepath.Join(d.Dir(), "own.socket")
	}
	return d.Socket()
}

// Dial makes a TCP connection in the node's network: 127.0.0.1 there is the node's own.
func (d *Daemon) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n, err := d.running("dial", network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	before := d.played
	d.mu.Unlock()
	if before != nil {
		return before.Dial(ctx, network, address)
	}
	return n.dial(ctx, network, address)
}

// running returns the node; the error is that of an operation that needs it.
func (d *Daemon) running(op, network, address string) (*node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.node == nil {
		return nil, &net.OpError{Op: op, Net: network, Err: fmt.Errorf("the node of %s is down: %w", address, net.ErrClosed)}
	}
	return d.node, nil
}

// Running reports whether the daemon runs. It may not be ready yet.
func (d *Daemon) Running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.daemon == nil {
		return false
	}
	select {
	case <-d.daemon.Done():
		return false
	default:
		return true
	}
}

// On reports whether the node has power: its instances run also where the daemon does not.
func (d *Daemon) On() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node != nil
}

// Removed reports whether Stop was called: its instances are no more.
func (d *Daemon) Removed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.removed
}

// Kill ends the daemon with SIGKILL. Its children continue: instances, DHCP servers, mounts.
func (d *Daemon) Kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kill()
}

func (d *Daemon) kill() error {
	if d.daemon == nil {
		return nil
	}
	d.unplay()
	// The daemon is the only child of the program that entered the node's namespaces for it.
	err := errors.Join(killChildren(d.daemon.PID()), d.daemon.Kill())
	d.daemon = nil
	if err != nil {
		return fmt.Errorf("killing LXD: %w", err)
	}
	return nil
}

// Restart starts the daemon again in the same directory, after Kill on the node that it had, after PowerOff on a
// new one with the same network. A daemon that runs is killed before. It returns when LXD is ready.
func (d *Daemon) Restart(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, eventually.Limit)
	defer cancel()
	if err := errors.Join(d.kill(), d.endHalfStarted(ctx)); err != nil {
		return err
	}
	if d.node == nil {
		n, err := startNode(ctx, d.base, d.options)
		if err != nil {
			return err
		}
		d.node = n
		if d.options.Proxy != nil {
			if err := n.forward(ctx, nodeProxy, d.options.Proxy); err != nil {
				return err
			}
		}
	}
	p, err := d.node.start(process.Spec{
		Name: "lxd", Path: d.program, Args: []string{"--group", "root", "--logfile", d.options.LogFile},
		Env: d.environment(), Dir: d.base, LogFile: d.outputFile(),
	})
	if err != nil {
		return err
	}
	d.daemon = p
	if err := d.waitReady(ctx); err != nil {
		return err
	}
	return d.play()
}

// Play makes a daemon that was started with Options.Plays one of another version. Connections are dropped and operations
// forgotten, as when an upgrade starts it anew.
func (d *Daemon) Play(version string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trusted == nil {
		return errors.New("the LXD was started without a version to play")
	}
	d.options.Plays = version
	d.unplay()
	return d.play()
}

// play puts a proxy before the daemon, if that runs and plays a version. It ends with the daemon.
func (d *Daemon) play() error {
	if d.trusted == nil || d.daemon == nil {
		return nil
	}
	before, err := played.Start(played.Options{
		Version: d.options.Plays, Socket: d.Socket(), Real: d.ownSocket(), Dir: d.Dir(), Dial: d.node.dial,
	}, d.trusted)
	if err != nil {
		return err
	}
	d.played = before
	go func(p *process.Process) { <-p.Done(); before.Close() }(d.daemon)
	return nil
}

func (d *Daemon) unplay() {
	if d.played != nil {
		d.played.Close()
		d.played = nil
	}
}

// outputFile gets the output of the daemon and its children, most of which is in the log, too.
func (d *Daemon) outputFile() string { return filepath.Join(d.base, "output.log") }

func (d *Daemon) environment() []string {
	all := []string{
		"PATH=" + d.shims() + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + d.base, "LANG=C.UTF-8",
		"LXD_DIR=" + d.Dir(), "LXD_SOCKET=" + d.ownSocket(),
		// LXD starts itself under this name for everything that runs beside the daemon, QEMU among it.
		"LXD_EXEC_PATH=" + filepath.Join(d.shims(), "lxd-exec"), "LXD_PROGRAM=" + d.program,
	}
	if d.options.Proxy != nil {
		all = append(all, "HTTPS_PROXY=http://"+nodeProxy)
	}
	switch {
	case d.options.Boots:
		all = append(all, firmwareIn(realFirmware)...)
	case runtime.GOARCH == firmwareArchitecture:
		all = append(all, firmwareIn(d.shims())...)
	}
	return all
}

// firmwareIn are the variables with the directory of firmware: that of LXD 5.0, and that of the versions after 6.9.
func firmwareIn(dir string) []string {
	return []string{"LXD_OVMF_PATH=" + dir, "LXD_QEMU_FW_PATH=" + dir}
}

// waitReady returns when LXD reports that it is ready, or when it has ended.
func (d *Daemon) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func(p *process.Process) {
		select {
		case <-p.Done():
			cancel(fmt.Errorf("LXD ended: %w", p.Err()))
		case <-ctx.Done():
		}
	}(d.daemon)
	if err := d.command(ctx, "waitready"); err != nil {
		return fmt.Errorf("waiting for LXD to be ready: %w\n%s", errors.Join(err, context.Cause(ctx)), d.lastOutput())
	}
	return nil
}

func (d *Daemon) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Env = d.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("lxd %s: %w: %s", args[0], err, out)
	}
	return nil
}

// lastOutput returns the end of the daemon's log and output.
func (d *Daemon) lastOutput() string {
	const most = 4 << 10
	var all []byte
	for _, file := range []string{d.options.LogFile, d.outputFile()} {
		text, err := os.ReadFile(file) // one of the daemon's own files
		if err == nil {
			all = append(all, text[max(0, len(text)-most):]...)
		}
	}
	return string(all)
}

// PowerOff cuts the node's power: nothing of it runs any more, whatever it was doing. The directory stays, and Restart
// brings the daemon back. It is no error when the node is down.
func (d *Daemon) PowerOff() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.node == nil {
		return nil
	}
	err := errors.Join(d.node.stop(), d.kill())
	d.node = nil
	return err
}

// Stop ends the node, with all that runs on it, and removes the daemon's directory. There is nothing that an orderly
// end would save. It may be called again.
func (d *Daemon) Stop() error {
	err := d.PowerOff()
	d.mu.Lock()
	d.removed = true
	d.mu.Unlock()
	if d.base == "" {
		return err
	}
	err = errors.Join(err, waitLoopDevices(d.base))
	if removal := os.RemoveAll(d.base); removal != nil {
		err = errors.Join(err, fmt.Errorf("removing the directory of LXD: %w", removal))
	}
	if d.lock != nil {
		_ = d.lock.Close() // it may be closed already
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/network"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

//go:embed region.yaml
var defaultRegion []byte

// startMAAS serves the region, boots its machines, and makes them reachable.
func (s *Sandbox) startMAAS(ctx context.Context) error {
	s.options.Progress("Starting the simulated MAAS")
	region, err := s.loadRegion(ctx)
	if err != nil {
		return err
	}
	s.MAAS, err = simulator.New(region, simulator.Options{
		Version:   s.options.MAASVersion,
		TimeScale: s.options.TimeScale,
		Seed:      s.options.Seed,
		Logger:    s.logger.WithName("maas"),
		Dial:      s.dialMachine,

		PatchedLXDDriver: true, // The LXD of this computer may be of any version.
	})
	if err != nil {
		return fmt.Errorf("starting the simulated MAAS: %w", err)
	}
	if s.MAASAPIKey, err = administratorKey(s.MAAS, ""); err != nil {
		return err
	}
	if err := s.serveMAAS(); err != nil {
		return err
	}
	systems, err := s.startSystems(ctx)
	if err != nil {
		return err
	}
	if s.network, err = network.Open(s.MAAS, systems); err != nil {
		return err
	}
	if s.options.Outside {
		s.network.Forward(s.env)
	}
	s.machines.Store(s.network)
	return nil
}

// startSystems gives machines their operating systems, which can be dialled.
func (s *Sandbox) startSystems(ctx context.Context) (network.Dialer, error) {
	withLXD, err := s.withLXD()
	if err != nil {
		return nil, err
	}
	s.all = newMachines(s.MAAS, s.logger.WithName("vms"))
	played := guest.Machines(s.all)
	if s.options.RealNodes {
		played = someMachines{s.all, s.isPlayed}
	}
	s.guests, err = guest.Start(ctx, played, guest.Options{
		Logger: s.logger.WithName("guest"), LXD: withLXD, Dir: s.dir, LogDir: s.LogDir, OnNode: s.runHostNode, Audit: s.options.Audit,
		BeforeKubeadm: s.options.BeforeKubeadm, Proxy: func() string { return s.machines.Load().ProxyURL().Host },
	})
	if err != nil {
		return nil, err
	}
	s.all.follow(ctx, s.guests.LXDs)
	if !s.options.RealNodes {
		return s.guests, nil
	}
	s.options.Progress("Preparing the disks of real nodes")
	err = s.startRealNodes(ctx)
	return systems{s}, err
}

func (s *Sandbox) loadRegion(ctx context.Context) (*simulator.Region, error) {
	var description io.Reader = bytes.NewReader(defaultRegion)
	if s.options.Region != nil {
		description = s.options.Region
	}
	region, err := simulator.LoadRegion(description)
	if err != nil || !s.options.RealNodes {
		return region, err
	}
	return region, s.addNodeImages(ctx, region)
}

// Control has the simulator do what no MAAS API can: it posts JSON to a path below ControlURL.
func (s *Sandbox) Control(ctx context.Context, path, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ControlURL+"/"+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("controlling the simulated MAAS: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("controlling the simulated MAAS: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("controlling the simulated MAAS: %w: %s: %s", errRefused, path, response.Status)
	}
	return nil
}

// errRefused is for a request that the simulator's own endpoint refuses.
var errRefused = errors.New("it refuses the request")

// errNoKey is for a region without an administrator, or without the named one, who has an API key.
var errNoKey = errors.New("the region has no such administrator with an API key")

// administratorKey is the key of an administrator, by name or the first.
func administratorKey(maas *simulator.Simulator, name string) (string, error) {
	for _, user := range maas.Users() {
		if user.Admin && len(user.Keys) > 0 && (name == "" || name == user.Name) {
			return user.Keys[0], nil
		}
	}
	return "", fmt.Errorf("%w: %q", errNoKey, name)
}

func (s *Sandbox) serveMAAS() error {
	reserved, err := port.Reserve()
	if err != nil {
		return fmt.Errorf("serving the simulated MAAS: %w", err)
	}
	s.maasPort = reserved
	listener, err := net.Listen("tcp", reserved.Address())
	if err != nil {
		return fmt.Errorf("serving the simulated MAAS: %w", err)
	}
	s.MAASURL = "http://" + listener.Addr().String() + "/MAAS"
	s.ControlURL = "http://" + listener.Addr().String() + "/control"
	s.serve(listener)
	return nil
}

func (s *Sandbox) stopMAAS(collect func(error)) {
	if s.maasServer != nil {
		collect(s.maasServer.Close())
	}
	if s.maasPort != nil {
		collect(s.maasPort.Close())
	}
	if s.MAAS != nil {
		s.MAAS.Close()
	}
}

// SPDX-License-Identifier: Apache-2.0

// Command maas-simulator runs a MAAS region in one process: MAAS's REST API 2.0 below /MAAS/api/2.0/ and a control
// endpoint for tests below /control/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/logging"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// shutdownTimeout bounds the requests that are under way after the signal to end.
const shutdownTimeout = 5 * time.Second

type config struct {
	listen, region, version, logLevel string
	timeScale                         float64
	seed                              int64
}

func main() {
	var c config
	flag.StringVar(&c.listen, "listen", "127.0.0.1:5240", "address to listen on")
	flag.StringVar(&c.region, "region", "", "YAML file that describes the region (required)")
	flag.StringVar(&c.version, "maas-version", "", "MAAS version: "+simulator.Series()+
		", or one of their point releases (default "+simulator.DefaultVersion.String()+")")
	flag.Float64Var(&c.timeScale, "time-scale", 1, "how fast the region's timings pass; at 60 a minute passes in a second")
	flag.Int64Var(&c.seed, "seed", 1, "seed of ids, names, MAC addresses and chances")
	flag.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, c)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "maas-simulator:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, c config) error {
	log, err := logging.New(c.logLevel, "json")
	if err != nil {
		return err
	}
	region, err := loadRegion(c.region)
	if err != nil {
		return err
	}
	sim, err := simulator.New(region, simulator.Options{
		Version: c.version, TimeScale: c.timeScale, Seed: c.seed, Logger: log,
	})
	if err != nil {
		return fmt.Errorf("starting the region: %w", err)
	}
	defer sim.Close()
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{Handler: sim.Handler(), ConnState: sim.ConnState, ReadHeaderTimeout: time.Minute}
	fmt.Printf("MAAS URL: http://%s/MAAS\n", listener.Addr())
	for _, user := range sim.Users() {
		fmt.Printf("API key of %s: %s\n", user.Name, user.Keys[0])
	}
	fmt.Printf("Control: http://%s/control/\n", listener.Addr())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	return shutdown(server, served)
}

// shutdown waits a while for requests that are under way.
func shutdown(server *http.Server, served <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

func loadRegion(file string) (*simulator.Region, error) {
	if file == "" {
		return nil, errors.New("--region names the file that describes the region; it is missing")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading the region description: %w", err)
	}
	defer f.Close()
	return simulator.LoadRegion(f)
}

// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a Kubernetes control plane as local processes: etcd, kube-apiserver with RBAC,
// and the controllers of kube-controller-manager that a management cluster needs. Everything listens on
// 127.0.0.1, and no process outlives the program that started it.
package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// AssetsVariable is the environment variable with the directory of the control plane's programs.
const AssetsVariable = "KUBEBUILDER_ASSETS"

const (
	stopGrace = 10 * time.Second
	// attempts to start, on a machine that has much else to do.
	attempts = 3
)

// collectSeldom is the environment of the processes. They live for minutes, and spend a fifth of their time on
// collecting garbage as soon as Go does by default: they have room for more, until they are large.
var collectSeldom = []string{"GOGC=1000", "GOMEMLIMIT=1500MiB"}

// ErrNoAssets is returned when the control plane's programs can't be found.
var ErrNoAssets = errors.New("no control-plane programs")

// Options are directories and addresses.
type Options struct {
	// Assets is the directory with etcd, kube-apiserver and kube-controller-manager. Default: $KUBEBUILDER_ASSETS.
	Assets string
	// Dir is an empty directory for data and certificates.
	Dir string
	// LogDir gets one log file for each process.
	LogDir string
	// Audit has the API server write AuditLogName in LogDir.
	Audit bool
	// NoControllers leaves out kube-controller-manager: no namespace ends, and no garbage is collected.
	NoControllers bool
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	options     Options
	credentials *credentials
	etcd        string             // its URL
	listen      string             // where the API server listens
	host        string             // its URL
	ports       []*port.Reserved   // of both
	processes   []*process.Process // in the order in which they were started
}

// Start runs the control plane and returns when it serves and its namespaces exist.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Assets == "" {
		options.Assets = os.Getenv(AssetsVariable)
	}
	if err := checkAssets(options.Assets); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the control plane: %w", err)
	}
	creds, err := newCredentials(options.Dir)
	if err != nil {
		return nil, err
	}
	var failures []error
	for range attempts {
		c := &ControlPlane{options: options, credentials: creds}
		err := c.start(ctx)
		if err == nil {
			return c, nil
		}
		failures = append(failures, err, c.Stop())
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failures...)
}

func checkAssets(dir string) error {
	if dir == "" {
		return fmt.Errorf("%w: set %s to a directory with etcd, kube-apiserver and kube-controller-manager (`make tools` builds them)", ErrNoAssets, AssetsVariable)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("%w in %s (%s): %w", ErrNoAssets, dir, AssetsVariable, err)
		}
	}
	return nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	for range 3 {
		reserved, err := port.Reserve()
		if err != nil {
			return err
		}
		c.ports = append(c.ports, reserved)
	}
	ctx, cancel := context.WithTimeout(ctx, eventually.Limit)
	defer cancel()

	if err := c.writeAuditPolicy(); err != nil {
		return err
	}
	c.etcd, c.listen = "http://"+c.ports[0].Address(), c.ports[2].Address()
	c.host = "https://" + c.listen
	data, err := os.MkdirTemp(c.options.Dir, "etcd-")
	if err != nil {
		return fmt.Errorf("making etcd's directory: %w", err)
	}
	if err := c.run(ctx, "etcd", c.etcd+"/readyz", etcdArgs(data, c.etcd, "http://"+c.ports[1].Address())); err != nil {
		return err
	}
	if err := c.run(ctx, apiserverName, c.host+"/readyz", c.apiserverArgs(c.etcd, c.listen)); err != nil {
		return err
	}
	if c.options.NoControllers {
		return nil
	}
	kubeconfig := filepath.Join(c.options.Dir, "kube-controller-manager.kubeconfig")
	if err := os.WriteFile(kubeconfig, c.mustKubeconfig(), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of kube-controller-manager: %w", err)
	}
	return c.run(ctx, "kube-controller-manager", "", c.controllerManagerArgs(kubeconfig))
}

// run starts one process and waits until its ready URL responds, if it has one.
func (c *ControlPlane) run(ctx context.Context, name, ready string, args []string) error {
	p, err := process.Start(c.spec(name, args))
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	if ready == "" {
		return nil
	}
	return c.awaitService(ctx, p, name, ready)
}

func (c *ControlPlane) spec(name string, args []string) process.Spec {
	return process.Spec{
		Name:    name,
		Path:    filepath.Join(c.options.Assets, name),
		Args:    args,
		Env:     collectSeldom,
		Dir:     c.options.Dir,
		LogFile: c.logFile(name),
	}
}

func (c *ControlPlane) logFile(name string) string {
	return filepath.Join(c.options.LogDir, name+".log")
}

func (c *ControlPlane) awaitService(ctx context.Context, p *process.Process, name, ready string) error {
	if err := c.awaitReady(ctx, p, ready); err != nil {
		return fmt.Errorf("waiting for %s (its log ends %q): %w", name, tail(c.logFile(name)), err)
	}
	return nil
}

func (c *ControlPlane) awaitReady(ctx context.Context, p *process.Process, url string) error {
	roots := x509.NewCertPool()
	roots.AddCert(c.credentials.ca.cert)
	direct := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer direct.CloseIdleConnections()
	client := &http.Client{Timeout: time.Minute, Transport: transport.NewBearerAuthRoundTripper(c.credentials.token, direct)}
	return eventually.Wait(ctx, "a response of "+url, func() (bool, string, error) {
		select {
		case <-p.Done():
			return false, "", fmt.Errorf("it ended: %w", p.Err())
		default:
			return answers(ctx, client, url), "none", nil
		}
	})
}

func answers(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Stop ends all processes in reverse order of their start. It takes at most the grace period for each.
func (c *ControlPlane) Stop() error {
	var failures []error
	for i := len(c.processes) - 1; i >= 0; i-- {
		failures = append(failures, c.processes[i].Stop(stopGrace))
	}
	for _, reserved := range c.ports {
		failures = append(failures, reserved.Close())
	}
	c.processes, c.ports = nil, nil
	return errors.Join(failures...)
}

// Host is the URL of the API server.
func (c *ControlPlane) Host() string { return c.host }

// CA is the certificate, PEM, that signs the API server's certificate.
func (c *ControlPlane) CA() []byte { return c.credentials.ca.pem() }

// PIDs are the process ids of the control plane.
func (c *ControlPlane) PIDs() []int {
	pids := make([]int, 0, len(c.processes))
	for _, p := range c.processes {
		pids = append(pids, p.PID())
	}
	return pids
}

// RESTConfig is the administrator's.
func (c *ControlPlane) RESTConfig() *rest.Config {
	return &rest.Config{
		Host:            c.host,
		BearerToken:     c.credentials.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()},
		QPS:             200,
		Burst:           400,
	}
}

// tail is the last line of a file, for an error.
func tail(file string) string {
	data, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/netns"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// External is a provider that is not Cluster API's own: the program of its release, in a process.
type External struct {
	// Name of the program in Programs, and of its log.
	Name string
	// Module has the provider's manifests, in config/default below Dir.
	Module, Dir string
	// CertificateFlag names the directory of the webhooks' certificate. Without one it is at controller-runtime's place
	// in the directory for temporary files.
	CertificateFlag string
	// Args are more arguments of the program, and Env is more of its environment.
	Args, Env []string
	// Address is one that the program has besides, and serves workload clusters at. "": it serves none.
	Address string
}

// ExternalOptions are the environment of such providers.
type ExternalOptions struct {
	// Config of the management cluster's administrator, and a kubeconfig file with the same.
	Config     *rest.Config
	Kubeconfig string
	// Proxy is the address of the proxy that leads to workload clusters, and to all else that is reached by HTTPS.
	Proxy string
	// Route leads connections through the proxy to an address of a provider.
	Route func(address string, dial func(ctx context.Context, hostPort string) (net.Conn, error))
	// Programs is the directory of the programs.
	Programs string
	// ModuleDir is the directory of the Go module that pins the providers' one, and Env the environment of the go command.
	ModuleDir string
	Env       []string
	// Dir is a directory for certificates, LogDir one for logs.
	Dir, LogDir string
}

// ExternalLog begins the names of these providers' logs.
const ExternalLog = "provider-"

// webhookPort is where a provider serves its webhooks, by default.
const webhookPort = "9443"

// Externals are running providers.
type Externals struct {
	processes []*process.Process
	// cleanup ends what they are reached through.
	cleanup []func()
}

// StartExternal installs and runs providers, and returns when their webhooks respond.
//
// Such a program serves webhooks on all addresses, whatever its flags. So it runs in a network namespace of its own, in
// which there are only the API server and the proxy, at the same addresses as outside; from there only the webhooks are
// reached, through a port of 127.0.0.1. This takes root.
func StartExternal(ctx context.Context, options ExternalOptions, externals []External) (*Externals, error) {
	started := &Externals{}
	for _, external := range externals {
		if err := started.start(ctx, options, external); err != nil {
			return nil, errors.Join(fmt.Errorf("starting %s: %w", external.Name, err), started.Stop())
		}
	}
	return started, nil
}

func (e *Externals) start(ctx context.Context, options ExternalOptions, external External) error {
	ctx, cancel := context.WithTimeout(ctx, eventually.Limit)
	defer cancel()
	temporary := filepath.Join(options.Dir, external.Name)
	certificates := filepath.Join(temporary, "k8s-webhook-server", "serving-certs")
	ca, err := writeWebhookCertificate(certificates)
	if err != nil {
		return err
	}
	namespace, err := e.network(ctx, options)
	if err != nil {
		return err
	}
	port, err := e.openWebhooks(ctx, namespace)
	if err != nil {
		return err
	}
	webhooks, err := installExternal(ctx, options, external, port, ca)
	if err != nil {
		return err
	}
	enter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	inside := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), namespace.Fd())
	if external.Address != "" {
		add := exec.CommandContext(ctx, enter, inside, "ip", "address", "add", external.Address+"/32", "dev", "lo")
		if out, err := add.CombinedOutput(); err != nil {
			return fmt.Errorf("giving it the address %s: %w: %s", external.Address, err, out)
		}
		options.Route(external.Address, func(ctx context.Context, hostPort string) (net.Conn, error) {
			return netns.Dial(ctx, namespace, "tcp", hostPort)
		})
	}
	arguments := []string{inside, filepath.Join(options.Programs, external.Name)}
	if external.CertificateFlag != "" {
		arguments = append(arguments, external.CertificateFlag+"="+certificates)
	}
	environment := []string{"KUBECONFIG=" + options.Kubeconfig, "HTTPS_PROXY=http://" + options.Proxy, "TMPDIR=" + temporary}
	program, err := process.Start(process.Spec{
		Name:    external.Name,
		Path:    enter,
		Args:    append(arguments, external.Args...),
		Env:     append(environment, external.Env...),
		LogFile: filepath.Join(options.LogDir, ExternalLog+external.Name+".log"),
	})
	if err != nil {
		return err
	}
	e.processes = append(e.processes, program)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	if err := awaitWebhooks(ctx, port, trusted, e.Err); err != nil {
		return fmt.Errorf("waiting for its webhooks: %w", err)
	}
	c, err := client.New(options.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return createAll(ctx, c, webhooks)
}

// network is a namespace in which a provider finds what it may reach.
func (e *Externals) network(ctx context.Context, options ExternalOptions) (*os.File, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, err
	}
	e.cleanup = append(e.cleanup, func() { _ = namespace.Close() })
	server, err := url.Parse(options.Config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	for _, address := range []string{server.Host, options.Proxy} {
		inside, err := netns.Listen(ctx, namespace, "tcp", address)
		if err != nil {
			return nil, err
		}
		e.cleanup = append(e.cleanup, netns.Forward(ctx, inside, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}))
	}
	return namespace, nil
}

// openWebhooks leads a port of 127.0.0.1 to those in a namespace.
func (e *Externals) openWebhooks(ctx context.Context, namespace *os.File) (port int, err error) {
	outside, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("opening a way to the webhooks: %w", err)
	}
	e.cleanup = append(e.cleanup, netns.Forward(ctx, outside, func(ctx context.Context) (net.Conn, error) {
		return netns.Dial(ctx, namespace, "tcp", net.JoinHostPort(loopback, webhookPort))
	}))
	return outside.Addr().(*net.TCPAddr).Port, nil
}

// installExternal installs a provider's CRDs, and returns its webhooks.
func installExternal(ctx context.Context, options ExternalOptions, external External, port int, ca []byte) ([]client.Object, error) {
	module, err := moduleDir(ctx, options.ModuleDir, options.Env, external.Module)
	if err != nil {
		return nil, err
	}
	rendered, err := render(module, external.Dir, fmt.Sprintf("https://%s:%d", loopback, port), ca)
	if err != nil {
		return nil, err
	}
	install := envtest.CRDInstallOptions{
		CRDs: rendered.crds, Scheme: runtime.NewScheme(), MaxTime: eventually.Limit,
	}
	if _, err := envtest.InstallCRDs(options.Config, install); err != nil {
		return nil, fmt.Errorf("installing its CRDs: %w", err)
	}
	return rendered.webhooks, nil
}

// errEnded is returned for a provider that ended by itself.
var errEnded = errors.New("it ended; its log says why")

// Err returns why something that should run does not.
func (e *Externals) Err() error {
	var failures []error
	for _, p := range e.processes {
		select {
		case <-p.Done():
			failures = append(failures, fmt.Errorf("%s: %w", p.Name(), errEnded))
		default:
		}
	}
	return errors.Join(failures...)
}

// Stop ends the providers, and then what they are reached through.
func (e *Externals) Stop() error {
	var failures []error
	for _, p := range e.processes {
		failures = append(failures, p.Stop(10*time.Second))
	}
	for i := range e.cleanup {
		e.cleanup[len(e.cleanup)-1-i]()
	}
	return errors.Join(failures...)
}

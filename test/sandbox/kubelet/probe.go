// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// eager is how often a probe that has not succeeded yet is tried; people are waiting.
const eager = 200 * time.Millisecond

// slowest is how long a probe may take at least, unlike on a node: all of a sandbox shares a busy computer.
const slowest = time.Minute

// probe asks the probes' URLs until the context ends. The startup probe holds back the others.
func (c *container) probe(ctx context.Context) {
	if c.spec.StartupProbe != nil && !c.await(ctx, c.spec.StartupProbe) {
		return
	}
	var probes sync.WaitGroup
	if c.spec.ReadinessProbe != nil {
		probes.Go(func() { c.watchProbe(ctx, c.spec.ReadinessProbe, c.setReady) })
	}
	if c.spec.LivenessProbe != nil {
		probes.Go(func() {
			c.watchProbe(ctx, c.spec.LivenessProbe, func(alive bool) {
				if !alive {
					c.restartHung(ctx)
				}
			})
		})
	}
	probes.Wait()
}

// await tries a probe until it succeeds once.
func (c *container) await(ctx context.Context, probe *corev1.Probe) bool {
	for !c.check(ctx, probe) {
		if !process.Pause(ctx, eager) {
			return false
		}
	}
	return true
}

// watchProbe waits for the first success, and then reports each time when the probe's thresholds are reached.
func (c *container) watchProbe(ctx context.Context, probe *corev1.Probe, tell func(bool)) {
	if !c.await(ctx, probe) {
		return
	}
	tell(true)
	failures := int32(0)
	for process.Pause(ctx, seconds(probe.PeriodSeconds, 10)) {
		if c.check(ctx, probe) {
			failures = 0
			tell(true)
			continue
		}
		failures++
		if failures >= orDefault(probe.FailureThreshold, 3) {
			tell(false)
		}
	}
}

func (c *container) restartHung(ctx context.Context) {
	c.mutex.Lock()
	p := c.process
	c.mutex.Unlock()
	if p == nil || ctx.Err() != nil {
		return
	}
	c.pod.kubelet.options.Logger.Info("The liveness probe fails: restarting", "pod", c.pod.spec.Name, "container", c.spec.Name)
	if err := p.Kill(); err != nil {
		c.pod.kubelet.options.Logger.Error(err, "Restarting", "pod", c.pod.spec.Name, "container", c.spec.Name)
	}
}

// probeTransport doesn't verify certificates, like the real kubelet's, and keeps no connections.
var probeTransport = &http.Transport{
	DisableKeepAlives: true,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, // as the kubelet
}

func (c *container) check(ctx context.Context, probe *corev1.Probe) bool {
	url, err := c.probeURL(probe.HTTPGet)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, max(seconds(probe.TimeoutSeconds, 1), slowest))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := (&http.Client{Transport: probeTransport}).Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= 200 && response.StatusCode < 400
}

func (c *container) probeURL(get *corev1.HTTPGetAction) (string, error) {
	port := get.Port.IntVal
	if get.Port.Type == intstr.String {
		for _, named := range c.spec.Ports {
			if named.Name == get.Port.StrVal {
				port = named.ContainerPort
			}
		}
	}
	if port == 0 {
		return "", fmt.Errorf("no port %s", get.Port.String())
	}
	c.mutex.Lock()
	if mapped, ok := c.ports[port]; ok {
		port = mapped
	}
	c.mutex.Unlock()
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(loopback, strconv.Itoa(int(port))) + get.Path, nil
}

func orDefault(value, fallback int32) int32 {
	if value == 0 {
		return fallback
	}
	return value
}

func seconds(value, fallback int32) time.Duration {
	return time.Duration(orDefault(value, fallback)) * time.Second
}

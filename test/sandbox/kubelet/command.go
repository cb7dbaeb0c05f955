// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// processSpec returns the process of a container.
func (c *container) processSpec(ports map[int32]int32) (process.Spec, error) {
	environment, err := c.environment()
	if err != nil {
		return process.Spec{}, err
	}
	words := make([]string, 0, len(c.spec.Command)+len(c.spec.Args))
	for _, word := range slices.Concat(c.spec.Command, c.spec.Args) {
		words = append(words, expand(word, environment.lookup))
	}
	if len(c.spec.Command) == 0 {
		return process.Spec{}, fmt.Errorf("container %s has no command, and there is no image to ask for one", c.spec.Name)
	}
	program, ok := c.pod.kubelet.options.Programs[words[0]]
	if !ok {
		return process.Spec{}, fmt.Errorf("no local program for the command %s", words[0])
	}
	here := func(value string) string { return rewritePorts(c.rewritePaths(value), ports) }
	args := make([]string, 0, len(words))
	for _, word := range words[1:] {
		args = append(args, here(word))
	}
	variables := make([]string, 0, len(environment.names))
	for _, name := range environment.names {
		variables = append(variables, name+"="+here(environment.values[name]))
	}
	return process.Spec{
		Name: c.pod.spec.Name + "/" + c.spec.Name,
		Path: program, Args: args, Env: append(variables, c.pod.ambient()...), Dir: c.pod.dir, LogFile: c.logFile,
	}, nil
}

// environment is the variables of a container, in order.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, known := e.values[name]; !known {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) lookup(name string) (string, bool) {
	value, ok := e.values[name]
	return value, ok
}

func (c *container) environment() (*environment, error) {
	e := &environment{values: map[string]string{}}
	for _, from := range c.spec.EnvFrom {
		if err := c.pod.envFrom(e, from); err != nil {
			return nil, err
		}
	}
	for _, variable := range c.spec.Env {
		if variable.ValueFrom == nil {
			e.set(variable.Name, expand(variable.Value, e.lookup))
			continue
		}
		value, found, err := c.valueFrom(variable.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
		}
		if found {
			e.set(variable.Name, value)
		}
	}
	return e, nil
}

func (p *pod) envFrom(e *environment, from corev1.EnvFromSource) error {
	var data map[string][]byte
	var err error
	optional := false
	switch {
	case from.SecretRef != nil:
		optional = ptr.Deref(from.SecretRef.Optional, false)
		data, err = p.secret(from.SecretRef.Name)
	case from.ConfigMapRef != nil:
		optional = ptr.Deref(from.ConfigMapRef.Optional, false)
		data, err = p.configMap(from.ConfigMapRef.Name)
	}
	if optional && apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for name, value := range data {
		e.set(from.Prefix+name, string(value))
	}
	return nil
}

// valueFrom also reports whether there is a value: optional ones may be missing.
func (c *container) valueFrom(source *corev1.EnvVarSource) (string, bool, error) {
	p := c.pod
	switch {
	case source.FieldRef != nil:
		value, err := p.field(source.FieldRef.FieldPath)
		return value, err == nil, err
	case source.SecretKeyRef != nil:
		data, err := p.secret(source.SecretKeyRef.Name)
		return key(data, err, source.SecretKeyRef.Key, ptr.Deref(source.SecretKeyRef.Optional, false))
	case source.ConfigMapKeyRef != nil:
		data, err := p.configMap(source.ConfigMapKeyRef.Name)
		return key(data, err, source.ConfigMapKeyRef.Key, ptr.Deref(source.ConfigMapKeyRef.Optional, false))
	case source.ResourceFieldRef != nil:
		value, err := c.resource(source.ResourceFieldRef)
		return value, err == nil, err
	default:
		return "", false, fmt.Errorf("only fieldRef, resourceFieldRef, secretKeyRef and configMapKeyRef are supported")
	}
}

// resource returns a resource of the container, as a number of whole units, rounded up. Without a limit it would be the
// node's capacity: that is not supported.
func (c *container) resource(source *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(source.Resource, ".")
	list := map[string]corev1.ResourceList{"limits": c.spec.Resources.Limits, "requests": c.spec.Resources.Requests}[kind]
	quantity, found := list[corev1.ResourceName(name)]
	if !found || !source.Divisor.IsZero() {
		return "", fmt.Errorf("the resource %s (divisor %s) is not supported", source.Resource, source.Divisor.String())
	}
	return strconv.FormatInt(quantity.Value(), 10), nil
}

func key(data map[string][]byte, err error, name string, optional bool) (string, bool, error) {
	if err != nil {
		if optional && apierrors.IsNotFound(err) {
			return "", false, nil
		}
		return "", false, err
	}
	value, ok := data[name]
	if !ok && !optional {
		return "", false, fmt.Errorf("there is no key %s", name)
	}
	return string(value), ok, nil
}

// field is the downward API.
func (p *pod) field(fieldPath string) (string, error) {
	values := map[string]string{
		"metadata.name":           p.spec.Name,
		"metadata.namespace":      p.spec.Namespace,
		"metadata.uid":            string(p.spec.UID),
		"spec.nodeName":           p.kubelet.options.NodeName,
		"spec.serviceAccountName": p.spec.Spec.ServiceAccountName,
		"status.hostIP":           p.kubelet.options.HostIP,
		"status.podIP":            loopback,
	}
	if value, ok := values[fieldPath]; ok {
		return value, nil
	}
	for prefix, set := range map[string]map[string]string{"metadata.labels": p.spec.Labels, "metadata.annotations": p.spec.Annotations} {
		if name, ok := strings.CutPrefix(fieldPath, prefix+"['"); ok {
			return set[strings.TrimSuffix(name, "']")], nil
		}
	}
	return "", fmt.Errorf("the field %s is not supported", fieldPath)
}

var reference = regexp.MustCompile(`\$\$|\$\([A-Za-z_.-][A-Za-z0-9_.-]*\)`)

// expand replaces $(NAME) by the variable's value, if it has one; $$ stands for one $.
func expand(text string, lookup func(string) (string, bool)) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := lookup(found[2 : len(found)-1]); ok {
			return value
		}
		return found
	})
}

// absolutePath finds paths at the beginning of a word, or after = , and : as in --flag=/a/b.
var absolutePath = regexp.MustCompile(`(^|[=,:])(/[^=,:\s]+)`)

// rewritePaths moves paths of mounts, paths below them, and directories that hold them, into the pod's directory. A
// path in a hostPath volume becomes the real path: the path of a socket must be short.
func (c *container) rewritePaths(value string) string {
	return absolutePath.ReplaceAllStringFunc(value, func(found string) string {
		start := strings.Index(found, "/")
		clean := path.Clean(found[start:])
		here := ""
		for _, mount := range c.spec.VolumeMounts {
			at := path.Clean(mount.MountPath)
			if rest, ok := below(at, clean); ok {
				if place, ok := c.pod.hostPlace(mount); ok {
					return found[:start] + filepath.Join(place, rest)
				}
				here = filepath.Join(c.rootDir(), clean)
			} else if _, ok := below(clean, at); ok && clean != "/" {
				here = filepath.Join(c.rootDir(), clean)
			}
		}
		if here == "" {
			return found
		}
		return found[:start] + here
	})
}

// below returns the rest of a path that is a directory or something in it. Both are clean.
func below(dir, file string) (rest string, ok bool) {
	if file == dir {
		return "", true
	}
	return strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/")
}

// rootDir is where the container's file system would begin.
func (c *container) rootDir() string { return filepath.Join(c.pod.dir, "root", c.spec.Name) }

// mapPorts reserves a free port for each port of a container.
func mapPorts(declared []corev1.ContainerPort) (portMap, error) {
	ports := portMap{}
	for _, one := range declared {
		reserved, err := port.Reserve()
		if err != nil {
			return nil, errors.Join(err, ports.release())
		}
		ports[one.ContainerPort] = reserved
	}
	return ports, nil
}

// portMap is which ports of this machine a container's ports are.
type portMap map[int32]*port.Reserved

func (m portMap) numbers() map[int32]int32 {
	numbers := map[int32]int32{}
	for declared, reserved := range m {
		numbers[declared] = int32(reserved.Number()) // a port fits
	}
	return numbers
}

// release gives the ports back.
func (m portMap) release() error {
	var failures []error
	for _, reserved := range m {
		failures = append(failures, reserved.Close())
	}
	return errors.Join(failures...)
}

var endPort = regexp.MustCompile(`:(\d{1,5})$`)

// rewritePorts replaces the port at the end of an argument like --addr=127.0.0.1:8443. Without a host it means all
// addresses of the pod, which are one. URLs are not changed: they name ports of others.
func rewritePorts(value string, ports map[int32]int32) string {
	if strings.Contains(value, "://") {
		return value
	}
	host := ""
	if start := endPort.FindStringIndex(value); start != nil && (start[0] == 0 || value[start[0]-1] == '=') {
		host = loopback
	}
	return endPort.ReplaceAllStringFunc(value, func(found string) string {
		number, err := strconv.ParseInt(found[1:], 10, 32)
		if err != nil {
			return found
		}
		if mapped, ok := ports[int32(number)]; ok {
			return host + ":" + strconv.Itoa(int(mapped))
		}
		return found
	})
}

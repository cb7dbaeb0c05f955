// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capmaas/cluster-api-provider-maas/controllers/planner"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// neverPolls is the interval of the inventories: a plan reads once.
const neverPolls = 24 * time.Hour

func (o *options) addPlanFlags(fs *pflag.FlagSet, c command) {
	o.addClusterFlags(fs, "what has none")
	switch c.operand {
	case "":
		fs.StringArrayVarP(&o.manifests, "filename", "f", nil, "YAML file with the manifests; - is the standard input. It can be given several times.")
	case "CLUSTER":
		fs.StringVar(&o.toVersion, "version", "", "Version of Kubernetes that the cluster gets, such as v1.36.2.")
	}
}

// completePlan sets o.subject, and what completeCluster sets.
func (o *options) completePlan(c command, operands []string, s surroundings) []string {
	problems := o.completeCluster(s)
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case c.operand == "":
		if len(o.manifests) == 0 {
			wrong("--filename is missing: the manifests to plan")
		}
	case len(operands) > 0:
		o.subject = types.NamespacedName{Namespace: o.namespace, Name: operands[0]}
		if namespace, name, both := strings.Cut(operands[0], "/"); both {
			o.subject = types.NamespacedName{Namespace: namespace, Name: name}
		}
		if o.subject.Name == "" || (o.subject.Namespace == "" && len(problems) == 0) || strings.Contains(o.subject.Name, "/") {
			wrong("%s: %q is neither NAME nor NAMESPACE/NAME", c.operand, operands[0])
		}
	}
	if c.operand == "CLUSTER" && !strings.HasPrefix(o.toVersion, "v") {
		wrong("--version: %q is no version such as v1.36.2", o.toVersion)
	}
	return problems
}

func planUpgrade(ctx context.Context, o options, _ surroundings) result {
	return planned(ctx, o, "plan upgrade", func(p *planner.Planner) (*plan.Simulation, error) { return p.Upgrade(ctx, o.subject, o.toVersion) })
}

func planDrain(ctx context.Context, o options, _ surroundings) result {
	return planned(ctx, o, "plan drain", func(p *planner.Planner) (*plan.Simulation, error) { return p.Drain(ctx, o.subject) })
}

func planManifests(ctx context.Context, o options, s surroundings) result {
	return planned(ctx, o, "plan", func(p *planner.Planner) (*plan.Simulation, error) {
		var all []*unstructured.Unstructured
		for _, name := range o.manifests {
			content, err := readManifest(name, s.in)
			if err != nil {
				return nil, err
			}
			objects, err := planner.Decode(bytes.NewReader(content), o.namespace)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, objects...)
		}
		return p.Apply(ctx, all)
	})
}

// planned runs one plan, and reports it.
func planned(ctx context.Context, o options, command string, how func(*planner.Planner) (*plan.Simulation, error)) result {
	r := &planReport{Command: command, Steps: []plan.Step{}}
	defer r.sumUp()
	var simulation *plan.Simulation
	err := withPlanner(ctx, o, func(p *planner.Planner) (err error) {
		simulation, err = how(p)
		return err
	})
	if err != nil {
		r.failed(err)
		return r
	}
	r.Steps = append(r.Steps, simulation.Steps()...)
	return r
}

// withPlanner reads clusters and their MAAS.
func withPlanner(ctx context.Context, o options, do func(*planner.Planner) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kubernetes, err := kubernetesClient(o)
	if err != nil {
		return err
	}
	registry := inventory.NewRegistry(inventory.Options{
		ActiveInterval: neverPolls, IdleInterval: neverPolls, Notify: func(string) {}, Logger: logr.Discard(),
	})
	ended := make(chan error, 1)
	go func() { ended <- registry.Start(ctx) }()
	err = do(&planner.Planner{
		Client: kubernetes,
		Scopes: &scope.Factory{Client: kubernetes, Registry: registry, Manager: scope.ManagerCredentials{Given: &o.maas}},
	})
	stop()
	return errors.Join(err, <-ended)
}

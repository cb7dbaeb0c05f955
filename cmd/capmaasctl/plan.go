// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	versions "k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/planner"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// neverPolls is the interval of the inventories: a plan reads once.
const neverPolls = 24 * time.Hour

// planning is one of the commands that plan, under its whole name.
func planning(
	c command, name string,
	how func(context.Context, options, surroundings, *planner.Planner) (*plan.Simulation, error),
	notes ...func(context.Context, options, *planner.Planner) ([]string, error),
) command {
	c.page = "capacity.md"
	c.needsMAAS, c.needsCluster, c.asksClusters, c.inNamespace, c.hasTimeout = true, true, true, true, true
	c.find = func(ctx context.Context, o options, s surroundings) result {
		r := &planReport{Command: name, Steps: []plan.Step{}}
		defer r.sumUp()
		if err := withPlanner(ctx, o, func(p *planner.Planner) error {
			simulation, err := how(ctx, o, s, p)
			if err == nil {
				r.Steps = append(r.Steps, simulation.Steps()...)
			}
			for _, note := range notes {
				if err == nil {
					r.Notes, err = note(ctx, o, p)
				}
			}
			return err
		}); err != nil {
			r.Steps = r.Steps[:0]
			r.failed(err)
		}
		return r
	}
	return c
}

func planCommand() command {
	return planning(command{
		use: "plan", short: "Show where the machines of manifests go, and whether they fit",
		long: "The manifests are such as those that clusterctl generate or capmaasctl convert print. A new Cluster\n" +
			"of a ClusterClass may be among them, with its class or without. It changes nothing.",
		example: "plan -f cluster.yaml\nplan -f cluster.yaml -o json",
		flags:   func(o *options, fs *pflag.FlagSet) { o.addManifestsFlag(fs) },
		complete: func(o *options, _ *pflag.FlagSet) {
			if len(o.manifests) == 0 {
				o.wrong("--filename is missing: the manifests to plan")
			}
		},
	}, "plan", planManifests)
}

func planUpgradeCommand() command {
	return planning(command{
		use: "upgrade CLUSTER", short: "Show what an upgrade of Kubernetes replaces when, and whether it fits",
		long: "It shows where each new machine goes, with the images that the cluster has now, and tells by\n" +
			"their names which have another version: it does not see into them. CLUSTER is NAME or\n" +
			"NAMESPACE/NAME. It changes nothing.",
		example: "plan upgrade my-cluster --namespace=default --kubernetes-version=v1.36.2",
		names: func(operands []string) ([]string, client.Object) {
			if len(operands) > 0 {
				return nil, nil
			}
			return nil, &clusterv1.Cluster{}
		},
		flags: func(o *options, fs *pflag.FlagSet) {
			fs.StringVar(&o.toVersion, "kubernetes-version", "", "Version of Kubernetes that the cluster gets, such as v1.36.2.")
		},
		complete: func(o *options, fs *pflag.FlagSet) {
			o.nameIn("CLUSTER", fs.Arg(0))
			switch {
			case o.toVersion == "":
				o.wrong("--kubernetes-version is missing: the version that the cluster is to get, such as v1.36.2")
			case !isVersion(o.toVersion):
				o.wrong("--kubernetes-version: %q is no version such as v1.36.2", o.toVersion)
			}
		},
	}, "plan upgrade", func(ctx context.Context, o options, _ surroundings, p *planner.Planner) (*plan.Simulation, error) {
		return p.Upgrade(ctx, o.subject, o.toVersion)
	}, outdatedImages)
}

// isVersion reports whether a text is a whole version of Kubernetes, as Cluster API takes it.
func isVersion(text string) bool {
	number, is := strings.CutPrefix(text, "v")
	_, err := versions.ParseSemantic(number)
	return is && err == nil
}

// outdatedImages says which images of a cluster have another version in their names than the one that it gets.
func outdatedImages(ctx context.Context, o options, p *planner.Planner) ([]string, error) {
	uses, err := p.OutdatedImages(ctx, o.subject, o.toVersion)
	return list.Each(uses, func(use planner.ImageUse) string {
		return fmt.Sprintf("%s has the image %s, which is of another version than %s by its name: change the image in the "+
			"same step", use.Owner, use.Image, o.toVersion)
	}), err
}

func planDrainCommand() command {
	return planning(command{
		use: "drain HOST", short: "Show where the VMs on an LXDHost would go, and which can't leave it",
		long:     "HOST is NAME or NAMESPACE/NAME. It changes nothing.",
		example:  "plan drain lxd-b --namespace=capmaas-system",
		names:    hostNames,
		complete: func(o *options, fs *pflag.FlagSet) { o.nameIn("HOST", fs.Arg(0)) },
	}, "plan drain", func(ctx context.Context, o options, _ surroundings, p *planner.Planner) (*plan.Simulation, error) {
		return p.Drain(ctx, o.subject)
	})
}

func planManifests(ctx context.Context, o options, s surroundings, p *planner.Planner) (*plan.Simulation, error) {
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
}

// withPlanner reads clusters and their MAAS.
func withPlanner(ctx context.Context, o options, do func(*planner.Planner) error) error {
	if o.unconnected != nil {
		return o.unconnected
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	registry := inventory.NewRegistry(inventory.Options{
		ActiveInterval: neverPolls, IdleInterval: neverPolls, Notify: func(string) {}, Logger: logr.Discard(),
	})
	manager := scope.ManagerCredentials{}
	if o.maas.Endpoint != "" {
		manager.Given = &o.maas
	}
	ended := make(chan error, 1)
	go func() { ended <- registry.Start(ctx) }()
	err := do(&planner.Planner{
		Client: o.cluster,
		Scopes: &scope.Factory{Client: o.cluster, Registry: registry, Manager: manager},
	})
	stop()
	return errors.Join(err, <-ended)
}

// planReport is the result of a plan. The JSON names are part of the output's contract.
type planReport struct {
	Command string      `json:"command"`
	Fits    bool        `json:"fits"`
	Steps   []plan.Step `json:"steps"`
	// Calls is how many calls to MAAS it takes at most; 0 if that is not known of each step.
	Calls int `json:"calls,omitempty"`
	// Seconds is how long the new machines take to come up one after the other; 0 if that is not known of each.
	Seconds int `json:"seconds,omitempty"`
	// Notes are what else to do.
	Notes []string `json:"notes,omitempty"`
	ending
}

func (r *planReport) failed(err error) {
	var wrong *planner.Error
	switch {
	case errors.As(err, &wrong):
		r.Problem = err.Error()
	case apierrors.IsNotFound(err):
		r.Problem, r.Remedy = err.Error(), "give its name, and its namespace with --namespace"
	default:
		r.Problem, r.Remedy = explainAll(err)
	}
}

// sumUp computes the totals.
func (r *planReport) sumUp() {
	counts := map[plan.Action]int{}
	refused, unknown, untimed := 0, false, false
	for _, step := range r.Steps {
		if step.Fits {
			counts[step.Action]++
			r.Calls += step.Calls
			r.Seconds += step.Seconds
			unknown = unknown || (step.Calls == 0 && step.Action != plan.Keep)
			untimed = untimed || (step.Seconds == 0 && step.Action == plan.Create)
		} else {
			refused++
		}
	}
	if unknown {
		r.Calls = 0
	}
	if untimed {
		r.Seconds = 0
	}
	r.Fits = r.Problem == "" && refused == 0
	switch {
	case r.Problem != "":
		r.Summary = "There is no plan. Nothing was changed."
	case len(r.Steps) == 0:
		r.Summary = "There is nothing to do."
	case r.Fits:
		r.Summary = fmt.Sprintf("It fits: %d machine(s) created, %d deleted, %d stay. Nothing was changed.",
			counts[plan.Create], counts[plan.Delete], counts[plan.Keep])
	default:
		r.Summary = fmt.Sprintf("It does not fit: %d machine(s) created, %d deleted, then it waits. Nothing was changed.",
			counts[plan.Create], counts[plan.Delete])
	}
}

func (r *planReport) good() bool { return r.Fits }

// text writes a table, then why what does not fit.
func (r *planReport) text(w io.Writer) error {
	err := table(w, "STEP,ACTION,CLUSTER,OWNER,MACHINE,HOST,ZONE,FITS", r.Steps, func(s plan.Step) []any {
		fits := "yes"
		if !s.Fits {
			fits = "no"
		}
		return []any{s.Number, s.Action, s.Cluster, s.Owner, s.Machine, s.Host, s.Zone, fits}
	})
	if len(r.Steps) > 0 {
		fmt.Fprintln(w)
	}
	for _, step := range r.Steps {
		if step.Reason != "" {
			fmt.Fprintf(w, "%d: %s\n", step.Number, step.Reason)
		}
	}
	if r.Calls > 0 {
		fmt.Fprintf(w, "It takes at most %d calls to MAAS, beside the lists that all machines share.\n", r.Calls)
	}
	if r.Seconds > 0 {
		fmt.Fprintf(w, "Its new machines take about %s to come up one after the other, by what others took. The drains of "+
			"Nodes come on top.\n", duration.HumanDuration(time.Duration(r.Seconds)*time.Second))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "Note: %s.\n", note)
	}
	return r.end(w, err)
}

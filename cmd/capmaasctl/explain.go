// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/remediation"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/reasons"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

func explainCommand() command {
	return command{
		use: "explain KIND NAME", short: "Tell what an object waits for, and what comes next",
		long: "KIND is " + strings.Join(kindNames(), ", ") + ", or what kubectl takes for them;\n" +
			"or cluster or machine: then it is the MaasCluster or MaasMachine of that.\n" +
			"NAME is NAME or NAMESPACE/NAME. It also tells what was asked of MAAS, which is in\n" +
			"the annotation " + infrav1.RecordAnnotation + ", and changes nothing.",
		example: "explain maasmachine my-cluster-md-0-x7k2p --namespace=default\n" +
			"explain lxdhost capmaas-system/lxd-a -o yaml",
		page:         "troubleshooting.md",
		needsCluster: true, inNamespace: true, hasTimeout: true,
		names: namesToExplain,
		complete: func(o *options, fs *pflag.FlagSet) {
			if o.object = strings.ToLower(fs.Arg(0)); kindNamed(o.object) == nil {
				o.wrong("KIND: %q is none of %s", fs.Arg(0), strings.Join(kindNames(), ", "))
			}
			o.nameIn("NAME", fs.Arg(1))
		},
		find: explainObject,
	}
}

// namesToExplain are the kinds, then the objects of the kind.
func namesToExplain(operands []string) ([]string, client.Object) {
	if len(operands) == 0 {
		return append(kindNames(), "cluster", "machine"), nil
	}
	k := kindNamed(strings.ToLower(operands[0]))
	switch {
	case k == nil || len(operands) > 1:
		return nil, nil
	case slices.Contains(k.users, strings.ToLower(operands[0])):
		return nil, k.user()
	}
	return nil, k.empty()
}

// withConditions is an object of ours.
type withConditions interface {
	client.Object
	GetConditions() []metav1.Condition
}

// kind is a kind that can be explained.
type kind struct {
	names []string // the first is its name, the others are those that kubectl takes, too
	// users are the names of Cluster API's kind whose infrastructure it is; none if it is no such.
	users []string
	user  func() client.Object
	empty func() withConditions
	// order returns the conditions that make up Ready, in the order in which they become true.
	order func(withConditions) []string
	// facts are what is worth knowing beside the conditions.
	facts func(withConditions) []fact
	// after is what comes when it is ready; none if that is all.
	after func(withConditions) []string
	// end is what comes when it is deleted.
	end func(withConditions) string
}

var kinds = []kind{{
	names: []string{"maasmachine", "maasmachines", "mm"},
	users: []string{"machine", "machines", "ma"},
	user:  func() client.Object { return &clusterv1.Machine{} },
	empty: func() withConditions { return &infrav1.MaasMachine{} },
	order: func(o withConditions) []string {
		_, isControlPlane := o.GetLabels()[clusterv1.MachineControlPlaneLabel]
		return list.Where(life.Conditions(o.(*infrav1.MaasMachine)), func(c string) bool {
			switch c {
			case infrav1.DNSAttachedCondition:
				return isControlPlane
			case infrav1.NodeJoinedCondition: // It is only there while it is False.
				return conditions.Has(o, c)
			}
			return true
		})
	},
	facts: machineFacts,
	after: func(o withConditions) []string {
		if o.(*infrav1.MaasMachine).Status.NodeName != "" {
			return nil
		}
		return []string{"its Node joins the cluster"}
	},
	end: func(o withConditions) string {
		if o.(*infrav1.MaasMachine).Spec.IsLXD() {
			return "the VM is deleted; its host is asked whether it is gone; then the object goes"
		}
		return "the machine is released, or kept for the next Machine; then the object goes"
	},
}, {
	names: []string{"maascluster", "maasclusters", "mc"},
	users: []string{"cluster", "clusters", "cl"},
	user:  func() client.Object { return &clusterv1.Cluster{} },
	empty: func() withConditions { return &infrav1.MaasCluster{} },
	order: func(o withConditions) []string {
		ofHosts := o.(*infrav1.MaasCluster).Spec.LXDControlPlaneCluster
		return list.Where(maascluster.Conditions, func(c string) bool { return ofHosts || c != infrav1.LXDReadyCondition })
	},
	facts: func(o withConditions) []fact {
		c := o.(*infrav1.MaasCluster)
		return []fact{{"cluster", c.Labels[clusterv1.ClusterNameLabel]}, {"endpoint", c.Spec.ControlPlaneEndpoint.Host},
			{"owner id", c.Annotations[infrav1.OwnerIDAnnotation]}}
	},
	end: func(withConditions) string {
		return "its machines go first, also those that are kept; then the DNS record, or the virtual IP; then the object goes"
	},
}, {
	names: []string{"lxdhost", "lxdhosts", "lxh"},
	empty: func() withConditions { return &infrav1.LXDHost{} },
	order: func(withConditions) []string { return lxdhost.Conditions },
	facts: hostFacts,
	end: func(withConditions) string {
		return "the VMs on it go first; then the object goes"
	},
}, {
	names: []string{"maasremediation", "maasremediations", "mr"},
	empty: func() withConditions { return &infrav1.MaasRemediation{} },
	order: func(withConditions) []string { return remediation.Conditions },
	facts: func(o withConditions) []fact {
		return []fact{{"step", string(o.(*infrav1.MaasRemediation).Status.Step)}}
	},
	end: func(withConditions) string {
		return "a machine that it switched off is switched on; then the object goes"
	},
}}

func kindNames() []string { return list.Each(kinds, func(k kind) string { return k.names[0] }) }

// kindNamed returns the kind that is called so, or nil.
func kindNamed(name string) *kind {
	return list.Find(kinds, func(k kind) bool { return slices.Contains(k.names, name) || slices.Contains(k.users, name) })
}

func machineFacts(o withConditions) []fact {
	m := o.(*infrav1.MaasMachine)
	server := m.Status.Hostname
	if m.Spec.SystemID != "" {
		server = strings.TrimSpace(server + " (" + m.Spec.SystemID + ")")
	}
	facts := []fact{{"cluster", m.Labels[clusterv1.ClusterNameLabel]}}
	for _, owner := range m.OwnerReferences {
		if owner.Kind == "Machine" {
			facts = append(facts, fact{"machine", owner.Name})
		}
	}
	facts = append(facts, fact{"image", m.Spec.Image}, fact{"server", server},
		fact{"state in MAAS", m.Status.MachineState}, fact{"zone", m.Status.FailureDomain})
	if len(m.Status.Addresses) > 0 {
		facts = append(facts, fact{"address", m.Status.Addresses[0].Address})
	}
	return append(facts, fact{"host", m.Status.LXDHost}, fact{"node", m.Status.NodeName},
		fact{"failure", m.Status.FailureReason})
}

func hostFacts(o withConditions) []fact {
	h := o.(*infrav1.LXDHost)
	facts := []fact{{"node", h.Status.NodeName}, {"LXD", h.Status.Version}}
	if h.Status.VMs != nil {
		facts = append(facts, fact{"VMs", fmt.Sprint(*h.Status.VMs)})
	}
	if e := h.Status.Evacuation; e != nil {
		facts = append(facts, fact{"being emptied", fmt.Sprintf("%d VM(s) leave, %d wait, %d are held", e.Leaving, e.Waiting,
			e.Held)})
		for _, vm := range e.VMs {
			facts = append(facts, fact{"", fmt.Sprintf("%s machine %s: %s", evacuationWords[vm.State], vm.Machine, vm.Message)})
		}
	}
	return facts
}

func explainObject(ctx context.Context, o options, _ surroundings) result {
	k := kindNamed(o.object)
	object := k.empty()
	r := &explanation{Command: "explain", Kind: k.names[0], Namespace: o.subject.Namespace, Name: o.subject.Name,
		Asked: []record.Entry{}, WaitsFor: []waiting{}, Next: []string{}}
	key, err := k.subject(ctx, o)
	if err == nil {
		r.Namespace, r.Name = key.Namespace, key.Name
		err = elsewhere(ctx, o.cluster, o.cluster.Get(ctx, key, object), object, key)
	}
	if err == nil {
		r.Warning = noManager(ctx, o.cluster)
		err = r.of(*k, object)
	}
	if err != nil {
		r.Problem, r.Remedy = explainAll(err)
	}
	return r
}

// subject returns the object that is meant: one of Cluster API's is named, or ours.
func (k *kind) subject(ctx context.Context, o options) (client.ObjectKey, error) {
	if !slices.Contains(k.users, o.object) {
		return o.subject, nil
	}
	user := k.user()
	if err := o.cluster.Get(ctx, o.subject, user); err != nil {
		return o.subject, elsewhere(ctx, o.cluster, err, user, o.subject)
	}
	ref := clusterv1.ContractVersionedObjectReference{}
	switch user := user.(type) {
	case *clusterv1.Cluster:
		ref = user.Spec.InfrastructureRef
		if ref.Kind == "MaasCluster" && ref.APIGroup == infrav1.GroupVersion.Group {
			break
		}
		if key, err := servingCluster(ctx, o, user); key.Name != "" || err != nil {
			return key, err
		}
	case *clusterv1.Machine:
		ref = user.Spec.InfrastructureRef
	}
	if ref.APIGroup != infrav1.GroupVersion.Group || strings.ToLower(ref.Kind) != k.names[0] {
		return o.subject, fmt.Errorf("spec.infrastructureRef of %s %s names no %s: see kubectl describe %s %s", k.users[0],
			o.subject, k.names[0], k.users[0], o.subject.Name)
	}
	return client.ObjectKey{Namespace: o.subject.Namespace, Name: ref.Name}, nil
}

// servingCluster returns the MaasCluster whose spec.clusterName is a Cluster of another provider; none: there is none.
func servingCluster(ctx context.Context, o options, cluster client.Object) (none client.ObjectKey, _ error) {
	all := &infrav1.MaasClusterList{}
	if err := o.cluster.List(ctx, all, client.InNamespace(cluster.GetNamespace())); err != nil {
		return none, fmt.Errorf("listing MaasClusters: %w", err)
	}
	serving := list.Where(all.Items, func(c infrav1.MaasCluster) bool { return c.Spec.ClusterName == cluster.GetName() })
	names := list.Each(serving, func(c infrav1.MaasCluster) string { return c.Name })
	switch len(serving) {
	case 0:
		return none, nil
	case 1:
		return client.ObjectKeyFromObject(&serving[0]), nil
	}
	return none, fmt.Errorf("cluster %s has the MaasClusters %s: explain maascluster NAME", o.subject,
		text.List(names, len(names)))
}

// of fills the explanation from an object. The error is that of record.EntriesOf.
func (r *explanation) of(k kind, object withConditions) error {
	r.Facts = list.Where(k.facts(object), func(one fact) bool { return one.Value != "" })
	order := k.order(object)
	r.Ready = conditions.IsTrue(object, infrav1.ReadyCondition)
	r.WaitsFor = append(r.WaitsFor, notTrue(object, order)...)
	if at := object.GetDeletionTimestamp(); at != nil {
		r.Deleting = at
		r.Next = append(r.Next, k.end(object))
	} else {
		open := list.Where(order, func(condition string) bool { return !conditions.IsTrue(object, condition) })
		r.Next = append(r.Next, list.Each(open, reasons.Becomes)...)
		if k.after != nil {
			r.Next = append(r.Next, k.after(object)...)
		}
	}
	asked, err := record.EntriesOf(object)
	r.Asked = append(r.Asked, asked...)
	return err
}

// notTrue returns the conditions that are not as they should be: those that make up Ready in their order, then the
// others.
func notTrue(object withConditions, order []string) (found []waiting) {
	all := slices.Clone(object.GetConditions())
	rank := func(c metav1.Condition) int {
		switch at := slices.Index(order, c.Type); {
		case c.Type == clusterv1.PausedCondition:
			return -2 // Nothing is done then.
		case c.Type == infrav1.ReadyCondition:
			return -1
		case at >= 0:
			return at
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b metav1.Condition) int { return rank(a) - rank(b) })
	for _, c := range all {
		isBad := c.Status != metav1.ConditionTrue
		if c.Type == clusterv1.PausedCondition {
			isBad = !isBad
		}
		// Ready repeats the first of the others, unless the object is being deleted.
		repeats := c.Type == infrav1.ReadyCondition && slices.ContainsFunc(all, func(other metav1.Condition) bool {
			return other.Type != c.Type && other.Reason == c.Reason && other.Message == c.Message
		})
		if isBad && !repeats {
			reason := reasons.Of(c.Reason)
			found = append(found, waiting{Condition: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message,
				Means: reason.Means, Remedy: reason.You, IfItStays: reason.Stays, Since: c.LastTransitionTime})
		}
	}
	return found
}

// now is replaced in tests.
var now = time.Now

// fact is worth knowing of an object.
type fact struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value"`
}

// waiting is a condition that is not as it should be. The JSON names are part of the output's contract.
type waiting struct {
	Condition string                 `json:"condition"`
	Status    metav1.ConditionStatus `json:"status"`
	Reason    string                 `json:"reason"`
	Message   string                 `json:"message"`
	// Means and Remedy are of its reason, if it is one of ours; IfItStays is where to look if one of progress stays.
	Means     string `json:"means,omitempty"`
	Remedy    string `json:"remedy,omitempty"`
	IfItStays string `json:"ifItStays,omitempty"`
	// Since is when its status changed last; its reason may have changed later.
	Since metav1.Time `json:"since"`
}

// explanation is the result of explain.
type explanation struct {
	Command   string `json:"command"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Warning says that no manager runs: what the object says may be old.
	Warning  string       `json:"warning,omitempty"`
	Ready    bool         `json:"ready"`
	Deleting *metav1.Time `json:"deleting,omitempty"` // since when
	Facts    []fact       `json:"facts,omitempty"`
	WaitsFor []waiting    `json:"waitsFor"`
	// Asked is what its record has, in words.
	Asked []record.Entry `json:"asked"`
	// Next is what comes, in order, if nothing goes wrong.
	Next []string `json:"next"`
	trouble
}

// good reports whether the object could be explained.
func (r *explanation) good() bool { return r.Problem == "" }

func (r *explanation) text(w io.Writer) error {
	state := "is not ready"
	switch {
	case r.Problem != "":
		state = "is not known"
	case r.Deleting != nil:
		state = "is being deleted, since " + ago(r.Deleting)
	case r.Ready:
		state = "is ready"
	}
	fmt.Fprintf(w, "%s %s/%s %s\n", r.Kind, r.Namespace, r.Name, state)
	for _, one := range r.Facts {
		fmt.Fprintf(w, "  %-14s %s\n", one.Name, one.Value)
	}
	r.trouble.text(w)
	if r.Warning != "" {
		fmt.Fprintf(w, "\nWarning: %s. Nothing is done for it, and what follows may be old.\n", r.Warning)
	}
	if r.Problem == "" {
		r.textOfWaiting(w)
	}
	if len(r.Asked) > 0 {
		fmt.Fprintln(w, "\nRecorded of what it asked of MAAS:")
	}
	for _, one := range r.Asked {
		fmt.Fprintf(w, "  %-5s %s\n", ago(one.Since), one.Words)
	}
	if len(r.Next) > 0 {
		fmt.Fprintln(w, "\nComes next:")
	}
	for i, step := range r.Next {
		fmt.Fprintf(w, "  %d. %s\n", i+1, step)
	}
	return nil
}

// textOfWaiting writes each condition with its message below it, as messages are long.
func (r *explanation) textOfWaiting(w io.Writer) {
	if len(r.WaitsFor) == 0 && !r.Ready {
		fmt.Fprintln(w, "\nIt says nothing of what it waits for: the manager has not looked at it yet.")
		return
	}
	if len(r.WaitsFor) == 0 {
		fmt.Fprintln(w, "\nIt waits for nothing.")
		return
	}
	fmt.Fprintln(w, "\nWaits for (more in docs/reasons.md):")
	for _, c := range r.WaitsFor {
		fmt.Fprintf(w, "  %-5s %s is %s: %s\n", ago(&c.Since), c.Condition, c.Status, c.Reason)
		for _, line := range []struct{ head, words string }{
			{"", c.Message}, {"means: ", c.Means}, {"to do: ", c.Remedy}, {"if it stays: ", c.IfItStays},
		} {
			if line.words != "" {
				fmt.Fprintf(w, "        %s%s\n", line.head, line.words)
			}
		}
	}
}

// ago is how long it is since a time, as kubectl shows it; - if it is not known.
func ago(at *metav1.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now().Sub(at.Time).Truncate(time.Second))
}

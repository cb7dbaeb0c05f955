// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Interval is a good Reconciler.Interval.
const Interval = 15 * time.Second

// Reconciler gives machines back that the record of a MaasCluster names and that no Machine will take.
type Reconciler struct {
	Client client.Client
	// APIReader reads the owners, which are not cached.
	APIReader client.Reader
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// Interval is the time between two looks at a MaasCluster for which machines wait.
	Interval time.Duration
	// WatchFilter limits it to objects whose label cluster.x-k8s.io/watch-filter has this value, if not empty.
	WatchFilter string
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasclusters,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachines,verbs=get;list;watch;create;delete

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "keep")
	err := capicontroller.NewControllerManagedBy(mgr, log).
		Named("keep").
		For(&infrav1.MaasCluster{}, builder.WithPredicates(predicate.Or(predicate.AnnotationChangedPredicate{}, predicate.GenerationChangedPredicate{}))).
		WithOptions(options).
		Complete(ctx, r)
	if err != nil {
		return fmt.Errorf("setting up the controller of machines that are kept: %w", err)
	}
	return nil
}

// Reconcile looks at the machines that wait for Machines of one cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	maasCluster := &infrav1.MaasCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, maasCluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	rec, err := record.Open(r.Client, maasCluster)
	if err != nil || len(rec.Kept) == 0 || !objects.Watched(maasCluster, r.WatchFilter) || objects.MovedAway(maasCluster) {
		return ctrl.Result{}, err
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, maasCluster.Namespace, clusters.NameOf(maasCluster))
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Cluster: %w", err)
	}
	if err == nil && annotations.IsPaused(cluster, maasCluster) {
		return ctrl.Result{RequeueAfter: r.Interval}, nil
	}
	if err != nil || !maasCluster.DeletionTimestamp.IsZero() {
		cluster = nil // It goes, or is gone.
	}
	k := &keeper{Reconciler: r, maasCluster: maasCluster, cluster: cluster, record: rec, missing: map[string]int{}}
	kept := slices.Clone(rec.Kept)
	slices.SortStableFunc(kept, func(a, b record.KeptMachine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since.Time))
	})
	var errs []error
	for i := range kept {
		if err := k.look(ctx, kept[i]); err != nil {
			errs = append(errs, fmt.Errorf("machine %s (%s), which is kept: %w", kept[i].Hostname, kept[i].SystemID, err))
		}
	}
	return ctrl.Result{RequeueAfter: r.Interval}, kerrors.NewAggregate(errs)
}

// rank sorts machines that are being taken first: they are for MaasMachines that are there.
func rank(k record.KeptMachine) int {
	if k.TakenBy != "" {
		return 0
	}
	return 1
}

// keeper looks at the machines of one cluster.
type keeper struct {
	*Reconciler
	maasCluster *infrav1.MaasCluster
	cluster     *clusterv1.Cluster // nil if it goes
	record      *record.Record
	missing     map[string]int // Machines by owner that no machine is kept for yet
}

// look decides what becomes of a machine.
func (k *keeper) look(ctx context.Context, kept record.KeptMachine) error {
	if kept.TakenBy != "" {
		taker, err := k.taker(ctx, kept)
		switch {
		case err != nil:
			return err
		case taker == nil || (taker.Spec.SystemID != "" && taker.Spec.SystemID != kept.SystemID):
			return k.record.Store(ctx, func(d *record.Data) { d.ReturnKept(kept.SystemID, kept.TakenBy, false) })
		case taker.Spec.SystemID == kept.SystemID:
			return k.record.Store(ctx, func(d *record.Data) { d.DropKept(kept.SystemID) })
		}
		return nil // It gets there, or says why not.
	}
	if !kept.GivenBack {
		why, err := k.whyNot(ctx, kept)
		if err != nil || why == "" {
			return err
		}
		given := false
		err = k.record.Store(ctx, func(d *record.Data) {
			d.ReturnKept(kept.SystemID, "", true)
			given = slices.ContainsFunc(d.Kept, func(now record.KeptMachine) bool { return now.SystemID == kept.SystemID && now.GivenBack })
		})
		if err != nil || !given {
			return err // A MaasMachine takes it.
		}
		k.Recorder.Eventf(k.maasCluster, nil, corev1.EventTypeNormal, "KeptMachineGivenBack", "Keep", "machine %s (%s) of MaasMachine %s is given back: %s",
			kept.Hostname, kept.SystemID, kept.Machine, why)
	}
	return k.giveBack(ctx, kept)
}

// whyNot returns why no Machine will take a machine, or "".
func (k *keeper) whyNot(ctx context.Context, kept record.KeptMachine) (string, error) {
	if k.cluster == nil {
		return "the cluster is being deleted", nil
	}
	if _, known := k.missing[kept.For]; !known {
		missing, err := Missing(ctx, k.Client, k.APIReader, k.cluster, kept.For)
		if err != nil {
			return "", err
		}
		k.missing[kept.For] = missing - k.taken(kept.For)
	}
	k.missing[kept.For]--
	switch {
	case k.missing[kept.For] < 0:
		return kept.For + " makes no Machine for it", nil
	case !k.Clock.Now().Before(kept.Until.Time):
		return "no Machine has taken it in time", nil
	}
	return "", nil
}

// taken returns how many machines are being taken by Machines of an owner.
func (k *keeper) taken(owner string) (n int) {
	for _, other := range k.record.Kept {
		if other.For == owner && other.TakenBy != "" {
			n++
		}
	}
	return n
}

// taker returns the MaasMachine that takes a machine; nil if it is gone.
func (k *keeper) taker(ctx context.Context, kept record.KeptMachine) (*infrav1.MaasMachine, error) {
	list := &infrav1.MaasMachineList{}
	if err := k.APIReader.List(ctx, list, client.InNamespace(k.maasCluster.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for the MaasMachine that takes it: %w", err)
	}
	at := slices.IndexFunc(list.Items, func(m infrav1.MaasMachine) bool { return m.UID == kept.TakenBy })
	if at < 0 {
		return nil, nil
	}
	return &list.Items[at], nil
}

// giveBack makes a MaasMachine of the name that the machine's had, and deletes it: its deletion releases the machine, and
// undoes what was done to it, as any other's.
func (k *keeper) giveBack(ctx context.Context, kept record.KeptMachine) error {
	m := &infrav1.MaasMachine{}
	err := k.APIReader.Get(ctx, client.ObjectKey{Namespace: k.maasCluster.Namespace, Name: kept.Machine}, m)
	if apierrors.IsNotFound(err) {
		m, err = k.former(kept), nil
		if err := k.Client.Create(ctx, m); err != nil {
			return fmt.Errorf("making MaasMachine %s to give it back: %w", m.Name, err)
		}
	}
	if err != nil {
		return fmt.Errorf("reading MaasMachine %s: %w", kept.Machine, err)
	}
	if m.Annotations[infrav1.GivesBackAnnotation] == "" {
		return nil // It is the former one still.
	}
	if err := k.Client.Delete(ctx, m); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting MaasMachine %s to give it back: %w", m.Name, err)
	}
	return k.record.Store(ctx, func(d *record.Data) { d.DropKept(kept.SystemID) })
}

// former returns a MaasMachine as the machine's was.
func (k *keeper) former(kept record.KeptMachine) *infrav1.MaasMachine {
	m := &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.maasCluster.Namespace, Name: kept.Machine, Labels: kept.Labels, Annotations: maps.Clone(kept.Annotations),
			Finalizers: []string{infrav1.MachineFinalizer},
		},
		Spec: kept.Spec,
	}
	m.Spec.Release.Keep = nil
	objects.Annotate(m, infrav1.GivesBackAnnotation, kept.SystemID)
	if text, err := json.Marshal(record.Data{Storage: kept.Storage}); err == nil && kept.Storage != nil {
		objects.Annotate(m, infrav1.RecordAnnotation, string(text))
	}
	return m
}

// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// meddling is what a user with rights in Kubernetes does to a cluster, once in its life.
type meddling string

const (
	nothing meddling = "nothing"
	// lesserKey puts the key of a user that sees less into the cluster's Secret, for a while.
	lesserKey meddling = "another key for a while"
	// otherOwner replaces the cluster's owner id by another one, and noOwner removes it, both for a while.
	otherOwner meddling = "another owner id for a while"
	noOwner    meddling = "no owner id for a while"
	// sameOwner is a cluster of a tenant with the owner id of this one, and madeOwner one whose owner id makes names
	// like those of this one's VMs. Both have machines of the same names.
	sameOwner meddling = "a tenant with the same owner id"
	madeOwner meddling = "a tenant with an owner id that was made to collide"
)

var meddlings = []meddling{lesserKey, nothing, noOwner, sameOwner, otherOwner, madeOwner}

// meddlingWith returns the meddling with a cluster. Any attack with so many clusters includes all kinds.
func meddlingWith(number int) meddling {
	return meddlings[(number+int(attack.seed%int64(len(meddlings))))%len(meddlings)]
}

const (
	// lesserUser is the manager's for a while, and sees less than an administrator does.
	lesserUser = "lesser"
	seesLess   = "chaoslesser:5TbGnHyMjUkIlOpQaZ:wSxEdCrFvTgByHnUjMiKoLpZqAwXsEdC"
	// meddledFor is how long it lasts: longer than the manager trusts its cache, and shorter than it searches for a
	// lost machine.
	meddledFor = 2500 * time.Millisecond
	// tenant is the namespace of another user.
	tenant = "tenant"
	// tenantFor is how long a tenant's cluster lives.
	tenantFor = 4 * time.Second
)

// secretYAML is the cluster's own API key.
const secretYAML = `---
apiVersion: v1
kind: Secret
metadata: {name: NAME-maas, namespace: default}
stringData: {endpoint: URL, apiKey: "KEY"}
`

// manifestOf is a cluster without machines.
func manifestOf(key client.ObjectKey, does meddling) string {
	plain := sandbox.Plain{Key: key}
	if does != lesserKey {
		return plain.Manifest()
	}
	plain.Credentials = key.Name + "-maas"
	return strings.NewReplacer("NAME", key.Name, "URL", box.MAASURL, "KEY", box.MAASAPIKey).Replace(secretYAML) + plain.Manifest()
}

// meddle does it, while machines are deleted if that must work meanwhile. It returns when everything is as before.
func (a *assault) meddle(ctx context.Context, key client.ObjectKey, does meddling, leave []string) error {
	var change, back func(context.Context) error
	switch does {
	case lesserKey:
		change = func(ctx context.Context) error { return setKey(ctx, key, seesLess) }
		back = func(ctx context.Context) error { return setKey(ctx, key, box.MAASAPIKey) }
	case noOwner, otherOwner:
		before, err := ownerOf(ctx, key)
		if err != nil {
			return err
		}
		other := ""
		if does == otherOwner {
			other = strings.Map(next, before)
			leave = nil // What is deleted by another owner id is another's by it.
		}
		change = func(ctx context.Context) error { return a.setOwner(ctx, key, other) }
		back = func(ctx context.Context) error { return a.setOwner(ctx, key, before) }
	default:
		return nil
	}
	a.figures.add(string(does), 1)
	ready, err := readyMachines(ctx, key)
	if err != nil {
		return err
	}
	if err := change(ctx); err != nil {
		return err
	}
	var removing sync.WaitGroup
	var removed error
	removing.Go(func() { removed = a.removeAll(ctx, leave) })
	err = pause(ctx, meddledFor)
	err = errors.Join(err, back(context.WithoutCancel(ctx)))
	removing.Wait()
	if err := errors.Join(err, removed); err != nil || does == otherOwner {
		return err // Machines with the mark of another owner may be reported as permanently not ours.
	}
	return a.recovered(ctx, key, slices.DeleteFunc(ready, func(name string) bool { return slices.Contains(leave, name) }))
}

// readyMachines are those of a cluster that run.
func readyMachines(ctx context.Context, cluster client.ObjectKey) (names []string, err error) {
	list := &infrav1.MaasMachineList{}
	labels := client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}
	if err := box.Client.List(ctx, list, client.InNamespace(cluster.Namespace), labels); err != nil {
		return nil, fmt.Errorf("listing the machines of %s: %w", cluster, err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; conditions.IsTrue(m, infrav1.ReadyCondition) && m.DeletionTimestamp.IsZero() && m.Status.FailureReason == "" {
			names = append(names, m.Name)
		}
	}
	return names, nil
}

// recovered waits until machines that ran run again, without a user having asked for their replacement.
func (a *assault) recovered(ctx context.Context, cluster client.ObjectKey, names []string) error {
	limited, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	return eventually.Wait(limited, fmt.Sprintf("%v to run again", names), func() (bool, string, error) {
		ready, err := readyMachines(ctx, cluster)
		missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(ready, name) })
		return len(missing) == 0, fmt.Sprint(missing), err
	})
}

// next makes another owner id of one.
func next(r rune) rune {
	if r == '9' || r == 'z' {
		return 'b'
	}
	return r + 1
}

func setKey(ctx context.Context, cluster client.ObjectKey, apiKey string) error {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = cluster.Namespace, cluster.Name+"-maas"
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"stringData": {"apiKey": %q}}`, apiKey))
	if err := box.Client.Patch(ctx, secret, patch); err != nil {
		return fmt.Errorf("changing the API key of %s: %w", cluster, err)
	}
	return nil
}

// forgetKey deletes the Secret of a cluster that is gone, if it had one.
func forgetKey(ctx context.Context, cluster client.ObjectKey) error {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = cluster.Namespace, cluster.Name+"-maas"
	return client.IgnoreNotFound(box.Client.Delete(ctx, secret))
}

func ownerOf(ctx context.Context, key client.ObjectKey) (string, error) {
	cluster := &infrav1.MaasCluster{}
	if err := box.Client.Get(ctx, key, cluster); err != nil {
		return "", fmt.Errorf("reading the owner id of %s: %w", key, err)
	}
	return cluster.Annotations[infrav1.OwnerIDAnnotation], nil
}

// setOwner changes the owner id of a cluster; "" removes it. That may be refused.
func (a *assault) setOwner(ctx context.Context, key client.ObjectKey, id string) error {
	value := "null"
	if id != "" {
		value = fmt.Sprintf("%q", id)
	}
	cluster := &infrav1.MaasCluster{}
	cluster.Namespace, cluster.Name = key.Namespace, key.Name
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, infrav1.OwnerIDAnnotation, value)
	err := box.Client.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", patch))
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		a.figures.add("owner ids that may not be changed", 1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing the owner id of %s: %w", key, err)
	}
	return nil
}

// invade has a tenant make a cluster that claims what another one has, and delete it after a while.
func (a *assault) invade(ctx context.Context, key client.ObjectKey, does meddling, victim member) error {
	if does != sameOwner && does != madeOwner {
		return nil
	}
	a.figures.add(string(does), 1)
	owner, err := ownerOf(ctx, key)
	if err != nil {
		return err
	}
	forged := client.ObjectKey{Namespace: tenant, Name: key.Name}
	twin := victim
	if does == madeOwner {
		// The hash in a name that does not fit into a label is made of the owner id and the name.
		owner, twin.Name = owner+"/"+victim.Name, strings.ReplaceAll(victim.Name, ".", "-")
	}
	err = box.ApplyYAML(ctx, strings.NewReader("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+tenant+"}\n"+
		sandbox.Plain{Key: forged, OwnerID: owner}.Manifest(twin.plain())))
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		a.figures.add("owner ids that may not be chosen", 1)
	} else if err != nil {
		return err
	}
	err = errors.Join(pause(ctx, tenantFor), a.auditor.Learn(ctx))
	a.agree(ctx, "with a tenant's cluster beside "+key.Name, key.Name)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), attack.limit)
	defer cancel()
	if err := errors.Join(err, box.DeleteCluster(limited, forged)); err != nil {
		return err
	}
	a.auditUntil(limited, "when a tenant's cluster beside "+key.Name+" was gone", func(ctx context.Context) ([]audit.Finding, error) {
		return a.auditor.Steady(ctx, audit.Who{Namespace: namespace, Cluster: key.Name})
	})
	return nil
}

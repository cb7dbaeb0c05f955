// SPDX-License-Identifier: Apache-2.0

package life

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rolls counts the Machines that are made from now on. check ends that, and fails the test if they are not as many as were
// wanted: each change is rolled out once, and nothing is replaced without a change.
func (l *Life) Rolls(machines int) (check func()) {
	l.Helper()
	c, err := client.NewWithWatch(l.Box.RESTConfig, client.Options{Scheme: l.Box.Client.Scheme()})
	if err != nil {
		l.Fatal(err)
	}
	list := &clusterv1.MachineList{}
	if err := c.List(l.Context(), list, l.ours()...); err != nil {
		l.Fatal(err)
	}
	options := append(l.ours(), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	events, err := c.Watch(l.Context(), &clusterv1.MachineList{}, options...)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(events.Stop)
	made := make(chan []string, 1)
	go func() {
		var names []string
		for event := range events.ResultChan() {
			if m, is := event.Object.(*clusterv1.Machine); is && event.Type == watch.Added {
				names = append(names, m.Name)
			}
		}
		made <- names
	}()
	return func() {
		l.Helper()
		events.Stop()
		if names := <-made; len(names) != machines {
			slices.Sort(names)
			l.Errorf("%d Machines were made, want %d: %v", len(names), machines, names)
		}
	}
}

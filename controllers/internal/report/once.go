// SPDX-License-Identifier: Apache-2.0

package report

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Once remembers of which objects something was told: the cache may still have them as they were before. After a
// restart it has not, and nothing is remembered.
type Once struct{ told sync.Map }

// First reports whether it is asked about an object for the first time.
func (o *Once) First(object client.Object) bool {
	_, before := o.told.LoadOrStore(object.GetUID(), nil)
	return !before
}

// Forget forgets an object that is deleted.
func (o *Once) Forget(object client.Object) { o.told.Delete(object.GetUID()) }

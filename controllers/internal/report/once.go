// SPDX-License-Identifier: Apache-2.0

package report

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Once remembers for which objects an event was sent, and which are gone: the cache may still have them as they were
// before. After a restart it has not, and nothing is remembered.
type Once struct {
	told  sync.Map // UIDs
	ended sync.Map // UIDs by name
}

// First reports whether it is asked about an object for the first time.
func (o *Once) First(object client.Object) bool {
	_, before := o.told.LoadOrStore(object.GetUID(), nil)
	return !before
}

// Again lets First be as if it was not asked about an object.
func (o *Once) Again(object client.Object) { o.told.Delete(object.GetUID()) }

// End notes that the finalizer of an object was removed.
func (o *Once) End(object client.Object) {
	o.Again(object)
	o.ended.Store(client.ObjectKeyFromObject(object), object.GetUID())
}

// Ended reports whether End was called for an object: nothing is left to be done for it, whatever the cache has.
func (o *Once) Ended(object client.Object) bool {
	uid, ended := o.ended.Load(client.ObjectKeyFromObject(object))
	return ended && uid == object.GetUID()
}

// Gone forgets an object that the cache does not have any more.
func (o *Once) Gone(name types.NamespacedName) { o.ended.Delete(name) }

// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"sync"
	"time"
)

// errRealHosts is for a region whose VM hosts are real: a copy would have the same ones.
var errRealHosts = errors.New("it has VM hosts that are not simulated")

// Copy starts another region with the database that this one has now, as people restore production's into a staging
// MAAS: the same users and keys, machines and ids. It has no machine, VM host or address in common with this region.
// What is under way here is never finished there. The caller ends it with Close.
func (s *Simulator) Copy() (*Simulator, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, host := range s.db.hosts {
		if remote(host.hv) {
			return nil, fmt.Errorf("copying a region: %w", errRealHosts)
		}
	}
	for _, lab := range s.lab {
		lab.mu.Lock()
		defer lab.mu.Unlock()
	}
	there := blank(s.opts, s.version, s.timings, s.time.clock)
	there.time.region, there.time.scale = s.time.now(), s.time.scale
	there.failNext = maps.Clone(s.failNext)
	c := copier{}
	there.db, there.lab = deepCopy(c, s.db), deepCopy(c, s.lab)
	there.start()
	return there, nil
}

// copier has the copies by what they were made of, so that what was one thing is one thing in the copy.
type copier map[any]reflect.Value

func deepCopy[T any](c copier, of T) (out T) {
	c.copy(reflect.ValueOf(&out).Elem(), reflect.ValueOf(&of).Elem())
	return out
}

// copy sets a variable to a copy of another one.
func (c copier) copy(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Pointer:
		c.copyPointer(to, from)
	case reflect.Interface:
		if !from.IsNil() {
			to.Set(c.copied(from.Elem()))
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		}
		for i := range from.Len() {
			c.copy(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
		}
		for each := from.MapRange(); each.Next(); {
			to.SetMapIndex(c.copied(each.Key()), c.copied(each.Value()))
		}
	case reflect.Struct:
		c.copyStruct(to, from)
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		panic(fmt.Sprintf("a region's database has a %s, which has no copy", from.Type()))
	default:
		to.Set(from)
	}
}

func (c copier) copyPointer(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	key := from.Interface()
	if _, copied := c[key]; !copied {
		c[key] = reflect.New(from.Type().Elem())
		c.copy(c[key].Elem(), from.Elem())
	}
	to.Set(c[key])
}

// copied returns a copy of what is no variable.
func (c copier) copied(value reflect.Value) reflect.Value {
	from, to := reflect.New(value.Type()).Elem(), reflect.New(value.Type()).Elem()
	from.Set(value)
	c.copy(to, from)
	return to
}

func (c copier) copyStruct(to, from reflect.Value) {
	switch from.Type() {
	case reflect.TypeFor[sync.Mutex](): // The copy's is not locked.
		return
	case reflect.TypeFor[time.Time](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix]():
		to.Set(from)
		return
	}
	for i := range from.NumField() {
		c.copy(variable(to.Field(i)), variable(from.Field(i)))
	}
}

// variable is a field, also one that is not exported.
func variable(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
}

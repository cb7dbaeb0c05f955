// SPDX-License-Identifier: Apache-2.0

// Package list has what package slices lacks.
package list

import "slices"

// Each returns what a function makes of each element.
func Each[S, T any](of []S, convert func(S) T) []T {
	var made []T
	for _, one := range of {
		made = append(made, convert(one))
	}
	return made
}

// Find returns the first element that is wanted, in the list itself; nil if there is none.
func Find[T any](in []T, wanted func(T) bool) *T {
	if at := slices.IndexFunc(in, wanted); at >= 0 {
		return &in[at]
	}
	return nil
}

// First returns the first element that is wanted; the zero value if there is none.
func First[T any](in []T, wanted func(T) bool) (none T) {
	if found := Find(in, wanted); found != nil {
		return *found
	}
	return none
}

// Where returns the elements that are wanted, in a list of their own.
func Where[T any](in []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(in), func(one T) bool { return !wanted(one) })
}

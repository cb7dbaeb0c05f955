// SPDX-License-Identifier: Apache-2.0

// Package reasons explains conditions and their reasons, as the comments on them in api/v1beta1 do.
package reasons

// Reason is what users want to know of a reason.
type Reason struct {
	Means string
	// You is what is left to the user; "" of a reason of progress.
	You string
	// Stays is where to look if a reason of progress stays; "" of any other.
	Stays string
}

// Of explains a reason; nothing if it is none of ours.
func Of(reason string) Reason { return all[reason] }

// Becomes says what is so when a condition becomes true; "" if it is none of ours.
func Becomes(condition string) string { return becomes[condition] }

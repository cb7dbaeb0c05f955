// SPDX-License-Identifier: Apache-2.0

// Package reasons explains the reasons of conditions, as api/v1beta1/reasons.go does.
package reasons

// Reason is what users want to know of a reason.
type Reason struct {
	Means string
	// You is what is left to the user; "" of a reason of progress.
	You string
}

// Of explains a reason; nothing if it is none of ours.
func Of(reason string) Reason { return all[reason] }

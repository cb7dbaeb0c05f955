// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package lxdnode

import "errors"

// freeBytes is for nodes, which run Linux: capmaasctl is built for more.
func freeBytes(string) (uint64, error) { return 0, errors.ErrUnsupported }

// SPDX-License-Identifier: Apache-2.0

// Package guard has what every client of another server needs, whether that is MAAS or LXD: the server may be slow,
// silent, broken or hostile, and this process may be paused anywhere. A response has bounds, nothing is sent after its
// time, a server that does not respond is only probed, and whoever waits holds no worker.
package guard

import "errors"

// Is reports whether an error is of a type, or wraps one that is.
func Is[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

// Parts returns the errors of an errors.Join, or the error alone; none of nil.
func Parts(err error) []error {
	joined, is := err.(interface{ Unwrap() []error })
	aggregate, isAggregate := err.(interface{ Errors() []error }) // as Kubernetes joins them
	switch {
	case err == nil:
		return nil
	case is:
		return joined.Unwrap()
	case isAggregate:
		return aggregate.Errors()
	}
	return []error{err}
}

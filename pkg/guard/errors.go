// SPDX-License-Identifier: Apache-2.0

package guard

import "errors"

// Is reports whether an error is of a type, or wraps one that is.
func Is[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

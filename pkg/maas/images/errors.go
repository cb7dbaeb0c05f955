// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Error is why MAAS can't deploy an image, or was not given one.
type Error struct {
	Problem, Remedy string
	// Offset is what MAAS has of a file that was not sent to its end.
	Offset int64
	cause  error
}

// Error returns the problem.
func (e *Error) Error() string { return e.Problem }

// Unwrap returns why an upload ended, or MAAS's refusal; nil for what was found out before.
func (e *Error) Unwrap() error { return e.cause }

const (
	replaceRemedy = "give it another name, for example with its version; with --replace MAAS drops the old file " +
		"at once, and no machine can be deployed with the image until the new one is there"
	awaitRemedy    = "wait, if it is being uploaded right now; otherwise --replace drops it"
	separateRemedy = "put the architecture into the names, or upgrade MAAS to 3.6.3 or 3.7.1"
	renameRemedy   = "delete that image in MAAS, which can't deploy it under this name; then run the command again"
	reuseRemedy    = "use that image"
	restartRemedy  = "make sure that MAAS's disk has room, and that nobody else uploads it; then run the command " +
		"again with --restart"
	goOnRemedy   = "run the same command again: it goes on there"
	finishRemedy = "finish the upload with `capmaasctl image upload`; or wait until MAAS has synced it to all region " +
		"controllers"
)

// otherContent is for an image of the name and the architecture with other content. A new upload would drop that at
// once.
func otherContent(name, architecture string, there maas.ImageDetail) *Error {
	if !there.Deployable() { // An upload that was not finished, or is under way.
		return &Error{Problem: fmt.Sprintf("MAAS has a part of another file as image %s for %s", name, architecture),
			Remedy: awaitRemedy}
	}
	return &Error{Problem: fmt.Sprintf("MAAS has another file as image %s for %s", name, architecture),
		Remedy: replaceRemedy}
}

// namesake is for an image of the name for another architecture, of which this version of MAAS can deploy neither if it
// has both (LP#2138312).
func namesake(name, architecture string, version maas.Version) *Error {
	return &Error{Problem: fmt.Sprintf("MAAS has image %s for %s, and MAAS %s can deploy neither of two images of one "+
		"name", name, architecture, version), Remedy: separateRemedy}
}

// sharedFile is for another image with the same content, in a file that this version of MAAS would spoil.
func sharedFile(image maas.Image, version maas.Version) *Error {
	remedy := reuseRemedy
	if image.IsMisnamed() {
		remedy = renameRemedy
	}
	return &Error{Problem: fmt.Sprintf("MAAS has the same file as image %s for %s, and MAAS %s would delete it there",
		image.Name, image.Architecture, version), Remedy: remedy}
}

// paused is for an upload that ended early, of which what MAAS has is good.
func paused(offset int64, cause error) *Error {
	return &Error{Problem: fmt.Sprintf("the upload ended after %d bytes: %v", offset, cause), Remedy: goOnRemedy,
		Offset: offset, cause: cause}
}

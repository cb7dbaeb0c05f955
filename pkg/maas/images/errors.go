// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// OtherContentError means that MAAS has an image of the name and the architecture with other content. A new upload
// would drop that at once.
type OtherContentError struct {
	Name, Architecture string
	// Complete: machines are deployed with it. Otherwise it is an upload that was not finished, or is under way.
	Complete bool
}

func (e *OtherContentError) Error() string {
	if !e.Complete {
		return fmt.Sprintf("MAAS has a part of another file as image %s for %s", e.Name, e.Architecture)
	}
	return fmt.Sprintf("MAAS has another file as image %s for %s", e.Name, e.Architecture)
}

// ArchitectureError means that MAAS has an image of the name for another architecture, and that this version of MAAS
// can deploy neither if it has both (LP#2138312).
type ArchitectureError struct {
	Name, Architecture string
	Version            maas.Version
}

func (e *ArchitectureError) Error() string {
	return fmt.Sprintf("MAAS has image %s for %s, and MAAS %s can deploy neither of two images of one name", e.Name,
		e.Architecture, e.Version)
}

// IncompleteError means that MAAS lists an image, and lacks a part of its file. It begins deployments with it all the
// same, and they fail.
type IncompleteError struct {
	Name, Architecture string
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("MAAS has only a part of image %s for %s", e.Name, e.Architecture)
}

// SharedFileError means that another image has the same content, in a file that this version of MAAS would spoil.
type SharedFileError struct {
	Image   maas.Image
	Version maas.Version
}

func (e *SharedFileError) Error() string {
	return fmt.Sprintf("MAAS has the same file as image %s for %s, and MAAS %s would delete it there",
		e.Image.Name, e.Image.Architecture, e.Version)
}

// PieceError means that MAAS refused a piece: what it has is not the beginning of the file, for example because two
// uploads ran at once, or its disk is full.
type PieceError struct {
	Offset int64
	cause  error
}

func (e *PieceError) Error() string {
	return fmt.Sprintf("MAAS refuses what follows byte %d: %v", e.Offset, e.cause)
}

// Unwrap returns MAAS's refusal.
func (e *PieceError) Unwrap() error { return e.cause }

// PausedError means that the upload ended early, and what MAAS has is good: it can go on there.
type PausedError struct {
	Offset int64
	cause  error
}

func (e *PausedError) Error() string {
	return fmt.Sprintf("the upload ended after %d bytes: %v", e.Offset, e.cause)
}

// Unwrap returns why it ended.
func (e *PausedError) Unwrap() error { return e.cause }

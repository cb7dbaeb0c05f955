// SPDX-License-Identifier: Apache-2.0

package lxdapi

import (
	"net/http"
	"slices"

	"github.com/canonical/lxd/shared/api"
)

// fineGrained is the type of an identity with a certificate that has its rights by groups. LXD 5.21.3 and 6.2 say it
// only by the type.
const fineGrained = "Client certificate"

// viewInstances is the entitlement to all instances of a project.
const viewInstances = "can_view_instances"

// IsFineGrained reports whether the client has its rights by groups, on a server as it has just described itself: GET
// /1.0/auth/identities/current. To such a one LXD lists what it may view, and responds to a question about anything
// else as if that did not exist.
func (c *Client) IsFineGrained(server *api.Server) (bool, error) {
	if !TraitsOf(server).Has(extensionGroups) {
		return false, nil
	}
	var identity struct {
		Type        string `json:"type"`
		FineGrained bool   `json:"fine_grained"`
	}
	err := c.In("").get(&identity, c.In("").Path("auth", "identities", "current"))
	if api.StatusErrorCheck(err, http.StatusNotFound) {
		return false, nil // The client of an authority: LXD knows no identity of it.
	}
	return identity.FineGrained || identity.Type == fineGrained, err
}

// SeesInstances reports whether LXD shows a client that has its rights by groups each instance of the project that
// there is: GET /1.0/projects/NAME. LXD 5.21.3 and 6.2 can't say that it does.
func (c *Client) SeesInstances() (bool, error) {
	var project struct {
		Entitlements []string `json:"access_entitlements"`
	}
	err := c.get(&project, c.In("").Path("projects", c.project).WithQuery("with-access-entitlements", viewInstances))
	if api.StatusErrorCheck(err, http.StatusNotFound, http.StatusForbidden) {
		return false, nil
	}
	return slices.Contains(project.Entitlements, viewInstances), err
}

// get reads something. The error is an api.StatusError if LXD returned one.
func (c *Client) get(into any, target *api.URL) error {
	response, _, err := c.sdk.RawQuery(http.MethodGet, target.String(), nil, "")
	if err != nil {
		return err
	}
	return response.MetadataAsStruct(into)
}

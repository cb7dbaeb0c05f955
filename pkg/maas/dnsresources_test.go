// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"fmt"
	"net/http"
	"testing"
)

// MAAS lists the names of machines with the id -1, and null for their addresses, where all names are asked for. They are
// no resources that can be changed, and hide none.
func TestImplicitNamesAreNoDNSResources(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"id": -1, "fqdn": "a.maas", "ip_addresses": null}, {"id": 7, "fqdn": "a.maas", "ip_addresses": null}]`)
	})
	got, err := client.ListDNSResources(t.Context(), "a.maas")
	if err != nil || len(got) != 1 || got[0].ID != 7 || len(got[0].Addresses()) != 0 {
		t.Errorf("%+v, %v; want the resource 7 without addresses", got, err)
	}
}

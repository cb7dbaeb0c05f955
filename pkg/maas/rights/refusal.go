// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"errors"
	"net/http"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// call is one that MAAS forbids users who lack a right.
type call struct {
	// method is "" for all that change something.
	method string
	// endpoint is a pattern of package maas, or, with * at the end, the beginning of some.
	endpoint string
	// op is MAAS's, the beginning of some, or "" for all.
	op   string
	need Need
	// uses are what it is for.
	uses []Use
}

// calls are all that not every user may make. Those that every user may, such as deploying a machine, are forbidden for
// machines that are locked, or another user's. The first that matches counts.
var calls = []call{
	{http.MethodGet, "vm-hosts/{id}/", "parameters", editInPool, []Use{VMs}},
	{"", "vm-hosts/{id}/", "compose", editInPool, []Use{VMs}},
	{"", "vm-hosts/{id}/", "refresh", editInPool, []Use{VMs}},
	{"", "vm-hosts/*", "", inMAAS(CanEditMachines), []Use{Registration}},
	{http.MethodGet, "machines/", "power_parameters", inMAAS(CanEditMachines), []Use{Registration}},
	{http.MethodDelete, "machines/{id}/", "", editInPool, []Use{VMs}},
	{"", "machines/{id}/", "set_storage_layout", editInPool, []Use{Storage}},
	{"", "machines/{id}/", "restore_storage_configuration", editInPool, []Use{Storage}},
	{"", "machines/{id}/", "test", editInPool, []Use{HardwareTests}},
	{"", "nodes/{id}/interfaces/", "create_bridge", editInPool, []Use{HostBridge, Interfaces}},
	{"", "nodes/{id}/interfaces/", "create_", editInPool, []Use{Interfaces}},
	{"", "nodes/{id}/interfaces/*", "", editInPool, []Use{StaticAddresses, Interfaces}},
	{http.MethodGet, "subnets/{id}/", "", viewAll, []Use{StaticAddresses, VirtualIP}},
	{http.MethodGet, "fabrics/{id}/vlans/", "", viewAll, []Use{Interfaces}},
	{http.MethodGet, "dnsresources/", "", viewAll, []Use{DNSEndpoint, VirtualIP}},
	{"", "dnsresources/*", "", editAll, []Use{DNSEndpoint}},
	{"", "ipaddresses/", "", viewAll, []Use{VirtualIP}},
	{"", "tags/*", "", editAll, []Use{Tags}},
	{"", "boot-resources/*", "", inMAAS(CanEditBootEntities), []Use{ImageUpload}},
}

func (c *call) is(e *maas.Error) bool {
	method := e.Method == c.method || c.method == "" && e.Method != http.MethodGet
	begin, isBegin := strings.CutSuffix(c.endpoint, "*")
	endpoint := e.Endpoint == c.endpoint || isBegin && strings.HasPrefix(e.Endpoint, begin)
	return method && endpoint && strings.HasPrefix(e.Op, c.op)
}

// Refusal returns what the API key's user lacks for a call that MAAS forbids. It is nil if nothing is forbidden, or
// only because the machine is locked, or another user's.
func Refusal(of error) *Error {
	if !errors.Is(of, maas.Forbidden) {
		return nil
	}
	refused, is := errors.AsType[*maas.Error](of)
	if !is {
		return nil
	}
	c := list.Find(calls, func(c call) bool { return c.is(refused) })
	if c == nil {
		return nil
	}
	what := refused.Method + " " + refused.Endpoint
	if refused.Op != "" {
		what += " op=" + refused.Op
	}
	uses := list.Each(c.uses, func(u Use) string { return u.Name })
	return &Error{
		What: what + " (" + strings.Join(uses, ", ") + ")", Missing: []Need{c.need}, cause: of,
		Lockable: c.need.InPool && !strings.HasPrefix(c.endpoint, "vm-hosts/"),
	}
}

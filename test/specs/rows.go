// SPDX-License-Identifier: Apache-2.0

package specs

import "strings"

// Effect is what becomes of an object whose spec a user changes, where the API server accepts that.
type Effect string

const (
	// Follows means that status, MAAS and LXD become as if the object had been made with the new spec. The walk through
	// all changes in the tests of the controllers proves it.
	Follows Effect = "follows"
	// Later means that the field counts when something is made, or done, after the change. Its description says so.
	Later Effect = "later"
	// Controller means that the controller writes the field, once. Its description says so.
	Controller Effect = "controller"
	// Same means that an empty value may come or go, which says the same as none.
	Same Effect = "same"
	// Policy means that an admission policy of the chart refuses the change, because a rule could not see that it is a dry
	// run of Cluster API.
	Policy Effect = "policy"
)

// Row says what a change of a field, and of all below it that has no row of its own, leads to.
type Row struct {
	Kind, Field string
	Effect      Effect
	// Says are words of the description of the field, or of the kind, by which users know of it. Without them, the change
	// has its effect at once.
	Says string
}

// Rows has a row for each field that may be changed.
var Rows = []Row{
	{"LXDHost", ".vmHost", Controller, "The controller sets it"},
	{"LXDHost", "", Follows, ""},

	{"MaasCluster", "", Follows, ""},
	{"MaasCluster", ".lxdConfig.storageSize", Later, "A pool that exists keeps its size"},

	{"MaasClusterTemplate", "", Policy, "immutable"},

	{"MaasMachine", ".systemID", Controller, "The controller records it"},
	{"MaasMachine", ".providerID", Controller, "The controller sets it"},
	{"MaasMachine", ".tags", Same, ""},
	{"MaasMachine", ".notTags", Same, ""},
	{"MaasMachine", ".deployInMemory", Same, ""},
	{"MaasMachine", ".dynamicLXD", Same, ""},
	{"MaasMachine", ".release", Later, "It may be changed at any time"},

	{"MaasMachineTemplate", "", Policy, "immutable"},

	{"MaasRemediation", "", Follows, ""},
	{"MaasRemediationTemplate", "", Later, "for remediations that are made afterwards"},
}

// RowOf returns the row of a field: that of its own, or of what contains it. It is nil if there is none.
func RowOf(kind, path string) *Row {
	var best *Row
	for i := range Rows {
		row := &Rows[i]
		below, is := strings.CutPrefix(path, row.Field)
		is = is && (below == "" || strings.ContainsAny(below[:1], ".["))
		if row.Kind == kind && is && (best == nil || len(row.Field) > len(best.Field)) {
			best = row
		}
	}
	return best
}

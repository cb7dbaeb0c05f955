// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// lxdTable returns the table of what LXDs take and do in different ways, and the list of what is the same in all.
func lxdTable(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("| What | Of | From LXD | API extension | What is other | What is done |\n|---|---|---|---|---|---|\n")
	same := map[lxdapi.Kind][]string{}
	var kinds []lxdapi.Kind
	for i := range lxdapi.Uses {
		use := &lxdapi.Uses[i]
		row := func(since, extension, what, here string) {
			if extension != "" {
				extension = "`" + extension + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", nameOf(use), use.By, since, extension, what, here)
		}
		if use.Since.Version != "" {
			row(use.Since.Version, use.Since.Extension, "it is new", "sent to none without the extension")
		}
		if use.Gone.Version != "" {
			here := "sent to none with the extension"
			if use.By&lxdapi.Hosts == 0 {
				here = "such an LXD is [no VM host](#vm-hosts-of-maas)"
			}
			row(use.Gone.Version, use.Gone.Extension, "it is gone", here)
		}
		for _, change := range use.Changes {
			row(change.Since, change.Extension, change.What, change.Here)
		}
		if (use.Since == lxdapi.Release{} && use.Gone == lxdapi.Release{} && len(use.Changes) == 0) {
			if same[use.Kind] == nil {
				kinds = append(kinds, use.Kind)
			}
			same[use.Kind] = append(same[use.Kind], nameOf(use))
		}
	}
	fmt.Fprintf(&b, "\nThe same from LXD %s to %s:\n\n", lxdapi.Oldest, lxdapi.Newest)
	for _, kind := range kinds {
		what := "keys of a " + string(kind)
		if kind == lxdapi.Endpoint {
			what = "endpoints"
		}
		fmt.Fprintf(&b, "- %s: %s\n", what, strings.Join(same[kind], ", "))
	}
	return b.Bytes(), nil
}

// nameOf returns how a document names a key, or an endpoint with its methods.
func nameOf(use *lxdapi.Use) string {
	if use.Kind != lxdapi.Endpoint {
		return "`" + use.Name + "`"
	}
	path := strings.TrimSuffix("/1.0/"+use.Name, "/")
	return fmt.Sprintf("`%s %s`", strings.ReplaceAll(use.Methods, " ", ", "), path)
}

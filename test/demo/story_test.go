// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// What is told is what the flags ask for, and what this computer can do.
func TestTheChaptersOfTheStory(t *testing.T) {
	for name, tc := range map[string]struct {
		opts options
		lxd  bool
		want []string
	}{
		"to look at":    {options{}, true, []string{"LXD hosts", "a cluster", "yours"}},
		"once":          {options{once: true}, true, []string{"LXD hosts", "a cluster", "deleted", "free servers"}},
		"simulated LXD": {options{once: true}, false, []string{"a cluster", "deleted"}},
		"with a drain":  {options{once: true, drain: true}, true, []string{"LXD hosts", "a cluster", "emptied", "deleted", "free servers"}},
		"real nodes":    {options{real: true, upgrade: true}, true, []string{"LXD hosts", "a cluster", "Service", "upgrades", "yours"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{opts: tc.opts, controlPlanes: 3}
			if tc.lxd {
				s.hosts = &hosts{story: s}
			}
			chapters := s.chapters()
			if len(chapters) != len(tc.want) {
				t.Fatalf("%d chapters, want %d", len(chapters), len(tc.want))
			}
			for i, chapter := range chapters {
				if !strings.Contains(chapter.caption, tc.want[i]) || len(chapter.caption) > 76 {
					t.Errorf("the caption %q is too long, or does not speak of %q", chapter.caption, tc.want[i])
				}
			}
		})
	}
}

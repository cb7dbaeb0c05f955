// SPDX-License-Identifier: Apache-2.0

package list_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

func TestOfLists(t *testing.T) {
	numbers := []int{1, 2, 3, 4}
	even := func(n int) bool { return n%2 == 0 }
	if got := list.Each(numbers, strconv.Itoa); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("each is %v", got)
	}
	if got := list.First(numbers, even); got != 2 {
		t.Errorf("the first even one is %d, want 2", got)
	}
	if got := list.Where(numbers, even); !slices.Equal(got, []int{2, 4}) || len(numbers) != 4 {
		t.Errorf("the even ones are %v", got)
	}
	*list.Find(numbers, even) = 5
	if numbers[1] != 5 {
		t.Error("what was found is not in the list")
	}
	if got := list.Find(numbers[:1], even); got != nil || list.First(numbers[:1], even) != 0 {
		t.Errorf("found %d among odd ones", *got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	kerrors "k8s.io/apimachinery/pkg/util/errors"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

func TestAnAddressThatIsTakenIsNoRefusal(t *testing.T) {
	wanted := netip.MustParseAddr("10.77.0.40")
	for reason, err := range map[string]*lxd.OtherAddressError{
		infrav1.StaticIPInUseReason: {SystemID: "abc123", Wanted: wanted, Taken: "IP address is already in use."},
		infrav1.MAASRefusedReason:   {SystemID: "abc123", Wanted: wanted},
	} {
		if problem := Explain(err); problem.Reason != reason || !strings.Contains(problem.Message, wanted.String()) {
			t.Errorf("it is %+v, want the reason %s", problem, reason)
		}
	}
}

// Whoever waits for a turn waits for MAAS; who wants a VM on a host that does something else first, for the host.
func TestWhatIsWaitedFor(t *testing.T) {
	later := &guard.LaterError{After: time.Minute, What: "others"}
	for name, tc := range map[string]struct {
		err    error
		reason string
	}{
		"MAAS":   {later, infrav1.MAASBusyReason},
		"a host": {errors.Join(&lxd.LXDError{Type: lxd.HostUnavailable, Message: "no host"}, later), infrav1.NoHostAvailableReason},
	} {
		if got, want := Explain(tc.err), (Problem{tc.reason, "others", time.Minute}); got != want {
			t.Errorf("%s: it is %+v, want %+v", name, got, want)
		}
	}
}

func TestBriefMakesOneShortLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"as it is":         {"no room in the pool", "no room in the pool"},
		"several lines":    {"no room\nin the\tpool\r\n", "no room in the pool"},
		"no text":          {"a\x00b \xff c", "a b ? c"},
		"too long":         {strings.Repeat("x", maxForeign+1), strings.Repeat("x", maxForeign) + "..."},
		"cut in character": {"x" + strings.Repeat("é", maxForeign), "x" + strings.Repeat("é", (maxForeign-1)/2) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Brief(tc.text); got != tc.want || !utf8.ValidString(got) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// What is waited for has its reason in a condition: it is an error of its own type, which the log does not show as one.
// What nobody expected stays an error, also beside a wait.
func TestAWaitIsNoError(t *testing.T) {
	unexpected := errors.New("a bug")
	for name, tc := range map[string]struct {
		err   error
		waits bool // as an error: not for a certain time
		fails bool
	}{
		"MAAS does not respond":      {&maas.Error{Kind: maas.Unavailable}, true, false},
		"MAAS says when to ask":      {&maas.Error{Kind: maas.Unavailable, RetryAfter: time.Minute}, false, false},
		"a list that is too old":     {&machine.StaleVMHostsError{}, true, false},
		"a person must do something": {Later(MendRetry, infrav1.NotReadyReason, "it waits"), false, false},
		"what nobody expected":       {unexpected, false, true},
	} {
		result, err := Explain(tc.err).Result(tc.err)
		if OnlyWaits(err) != tc.waits || (err != nil) != (tc.waits || tc.fails) || (result.RequeueAfter > 0) != (err == nil) {
			t.Errorf("%s: %+v, %v; want a wait: %t, an error: %t", name, result, err, tc.waits, tc.fails)
		}
		if err != nil && !errors.Is(err, tc.err) {
			t.Errorf("%s: %v hides its cause", name, err)
		}
		if alone := kerrors.NewAggregate([]error{nil, err}); OnlyWaits(alone) != tc.waits {
			t.Errorf("%s: joined with no other error, it is a wait: %t", name, !tc.waits)
		}
		if both := kerrors.NewAggregate([]error{err, unexpected}); OnlyWaits(both) {
			t.Errorf("%s: with an error that nobody expected it is a wait", name)
		}
	}
}

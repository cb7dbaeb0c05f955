// SPDX-License-Identifier: Apache-2.0

// Package report makes conditions, and turns errors into reasons, messages and retries.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Requeue intervals for states whose end triggers no reconcile.
const (
	// CapacityRetry: an operator may free a machine, or room on a host.
	CapacityRetry = 30 * time.Second
	// MendRetry: a person must mend something in MAAS.
	MendRetry = time.Minute
	// UnknownRetry: the inventory triggers a reconcile when it knows the machine, but may do so before our cache has
	// the system id. A retry costs no call.
	UnknownRetry = 5 * time.Second
	// SafetyRetry: the inventory triggers a reconcile when something changes; this is only in case it does not.
	SafetyRetry = 5 * time.Minute
)

// SetTrue sets a condition to True.
func SetTrue(to conditions.Setter, condition, reason string) {
	conditions.Set(to, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason})
}

// SetFalse sets a condition to False, with the formatted message.
func SetFalse(to conditions.Setter, condition, reason, format string, args ...any) {
	conditions.Set(to, metav1.Condition{
		Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...),
	})
}

// SetUnknown sets a condition to Unknown.
func SetUnknown(to conditions.Setter, condition, reason, message string) {
	conditions.Set(to, metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: reason,
		Message: message})
}

// Summarize makes Ready from the conditions that matter, in order: the first one that is not true gives the reason.
func Summarize(of conditions.Setter, deleting bool, types ...string) {
	if deleting {
		SetFalse(of, infrav1.ReadyCondition, infrav1.DeletingReason, "%s", deletionMessage(of, types))
		return
	}
	for _, condition := range types {
		c := conditions.Get(of, condition)
		if c != nil && c.Status != metav1.ConditionTrue {
			conditions.Set(of, metav1.Condition{Type: infrav1.ReadyCondition, Status: c.Status, Reason: c.Reason,
				Message: c.Message})
			return
		}
	}
	if len(types) > 0 && conditions.Get(of, types[0]) == nil {
		SetFalse(of, infrav1.ReadyCondition, infrav1.NotReadyReason, "not reconciled yet")
		return
	}
	SetTrue(of, infrav1.ReadyCondition, infrav1.ReadyReason)
}

// AwaitOwner says on an object that nothing is done for it until an object of a kind owns it.
func AwaitOwner(ctx context.Context, c client.Client, object interface {
	client.Object
	conditions.Setter
}, kind string) error {
	return client.IgnoreNotFound(objects.PatchConditions(ctx, c, object, func() {
		SetFalse(object, infrav1.ReadyCondition, infrav1.WaitingForOwnerReason, "no %s owns it, so nothing is done for it: "+
			"spec.infrastructureRef of a %s in namespace %s must name %s, or delete it", kind, kind, object.GetNamespace(),
			object.GetName())
	}, infrav1.ReadyCondition))
}

// maxForeign bounds texts of other programs, in bytes.
const maxForeign = 512

// Brief shortens a text of another program (a Node, an IPAM provider, the API server of a host cluster) to one line
// that fits a condition, without what differs from try to try. With a message that is too long, Kubernetes would refuse
// the whole status; one that changes each time would wake its object each time.
func Brief(foreign string) string { return text.Steady(foreign, maxForeign) }

// After returns a text of another program as the end of a message; "" if there is none.
func After(foreign string) string {
	if foreign == "" {
		return ""
	}
	return ": " + Brief(foreign)
}

func deletionMessage(of conditions.Getter, types []string) string {
	for _, condition := range types {
		if c := conditions.Get(of, condition); c != nil && c.Status != metav1.ConditionTrue && c.Message != "" {
			return c.Message
		}
	}
	return "being deleted"
}

// Problem is an error as users and the work queue need it: a reason, a message that stays the same on each retry, and
// when to retry.
type Problem struct {
	Reason, Message string
	// RetryAfter is 0 if the work queue's growing backoff applies.
	RetryAfter time.Duration
}

// NotReadyError is why a step has to wait, though nothing failed.
type NotReadyError struct{ Problem }

// NotReady returns the error of a step that has to wait.
func NotReady(p Problem) error { return &NotReadyError{p} }

// Later is NotReady, with a formatted message and the time of the next try.
func Later(after time.Duration, reason, format string, args ...any) error {
	return NotReady(Problem{Reason: reason, Message: fmt.Sprintf(format, args...), RetryAfter: after})
}

func (e *NotReadyError) Error() string { return e.Message }

// Explain sorts errors by type; an error without a type of its own is retried with backoff.
func Explain(err error) Problem {
	var (
		notReady  *NotReadyError
		domain    *dns.DomainError
		virtualIP *dns.VirtualIPError
		address   *machine.AddressError
		missing   *machine.MissingError
		stale     *machine.StaleVMHostsError
		mayNot    *rights.Error
		placement *lxd.LXDError
		later     *guard.LaterError
		nameTaken *lxd.NameTakenError
		otherIP   *lxd.OtherAddressError
		unsettled *record.UnsettledError
		lost      *record.LostError
	)
	switch {
	case errors.As(err, &notReady):
		return notReady.Problem
	case guard.Is[*scope.CredentialsError](err), guard.Is[*scope.ElsewhereError](err):
		return Problem{infrav1.CredentialsInvalidReason, err.Error(), MendRetry}
	case errors.As(err, &domain):
		return Problem{cmp.Or(reasons[domain.Problem], infrav1.DomainNotFoundReason), err.Error(), MendRetry}
	case errors.As(err, &virtualIP) && virtualIP.InUse:
		return Problem{infrav1.VirtualIPInUseReason, err.Error(), MendRetry}
	case errors.As(err, &virtualIP):
		return Problem{infrav1.VirtualIPInvalidReason, err.Error(), MendRetry}
	case errors.As(err, &address):
		return Problem{cmp.Or(reasons[address.Problem], infrav1.StaticIPInvalidReason), err.Error(), MendRetry}
	case guard.Is[*machine.NICError](err) && errors.Is(err, maas.Forbidden):
		return Problem{infrav1.EntitlementMissingReason, err.Error(), MendRetry}
	case guard.Is[*machine.NICError](err):
		return Problem{infrav1.NetworkDeviceInvalidReason, err.Error(), MendRetry}
	case guard.Is[*machine.ImageError](err), guard.Is[*lxd.NoImageError](err):
		return Problem{infrav1.ImageNotFoundReason, err.Error(), CapacityRetry}
	case errors.As(err, &missing):
		return Problem{cmp.Or(reasons[missing.Kind], infrav1.TagNotFoundReason), err.Error(), MendRetry}
	case errors.As(err, &stale):
		return Problem{infrav1.NotReadyReason, stale.Error(), 0}
	case errors.As(err, &mayNot) && len(mayNot.Missing) == 0:
		return Problem{infrav1.AdministratorNeededReason, err.Error(), MendRetry}
	case errors.As(err, &mayNot):
		return Problem{infrav1.EntitlementMissingReason, err.Error(), MendRetry}
	case guard.Is[*scope.BootstrapDataError](err):
		return Problem{infrav1.WaitingForBootstrapDataReason, err.Error(), CapacityRetry}
	case guard.Is[*scope.BootstrapFormatError](err):
		return Problem{infrav1.BootstrapFormatNotSupportedReason, err.Error(), SafetyRetry}
	case errors.As(err, &nameTaken):
		return Problem{infrav1.MachineNotOursReason, nameTaken.Error() + ": delete the Machine, whose successor has " +
			"another name and MAC address; or, if it has the name, rename it in MAAS", MendRetry}
	case errors.As(err, &otherIP) && otherIP.Taken != "":
		return Problem{infrav1.StaticIPInUseReason, otherIP.Error(), MendRetry}
	case errors.As(err, &otherIP):
		return Problem{infrav1.MAASRefusedReason, otherIP.Error(), MendRetry}
	case guard.Is[*lxd.FormerHostError](err):
		return Problem{infrav1.VMHostsNotSupportedReason, err.Error(), MendRetry}
	case errors.As(err, &unsettled):
		return Problem{infrav1.MAASUnavailableReason, unsettled.Error(), min(unsettled.Remaining, CapacityRetry)}
	case guard.Is[*ownership.UndecidedError](err):
		return Problem{infrav1.MAASUnavailableReason, err.Error(), CapacityRetry}
	case errors.As(err, &later) && errors.As(err, &placement):
		return Problem{infrav1.NoHostAvailableReason, later.Error(), later.After}
	case errors.As(err, &later):
		return Problem{infrav1.MAASBusyReason, later.Error(), later.After}
	case errors.Is(err, maas.Busy):
		return Problem{infrav1.MAASBusyReason, maas.Message(err), max(maas.RetryAfter(err), time.Second)}
	case errors.As(err, &placement):
		return Problem{cmp.Or(reasons[placement.Type], infrav1.NoHostAvailableReason), err.Error(),
			max(CapacityRetry, maas.RetryAfter(err))}
	case errors.As(err, &lost):
		return Problem{unavailable(err), lost.Error(), min(lost.Remaining, CapacityRetry)}
	}
	return explainMAAS(err)
}

// reasons are those of the kinds that errors have; each error has another one for its other kinds.
var reasons = map[any]string{
	dns.DomainNotAuthoritative:    infrav1.DomainNotAuthoritativeReason,
	lxd.ProfileNotFound:           infrav1.ProfileNotFoundReason,
	lxd.VMCreationFailed:          infrav1.VMCreationFailedReason,
	machine.MissingZone:           infrav1.ZonesNotFoundReason,
	machine.MissingScript:         infrav1.ChecksInvalidReason,
	machine.MissingPool:           infrav1.ResourcePoolNotFoundReason,
	machine.AddressInUse:          infrav1.StaticIPInUseReason,
	machine.AddressOutsideSubnets: infrav1.StaticIPOutsideSubnetsReason,
	machine.AddressInDynamicRange: infrav1.StaticIPInDynamicRangeReason,
}

// unavailable is the reason of an error that says nothing of what was asked for: which server did not respond.
func unavailable(err error) string {
	if guard.Is[*lxdhost.Error](err) {
		return infrav1.LXDUnavailableReason
	}
	return infrav1.MAASUnavailableReason
}

// explainMAAS sorts the errors of the MAAS client.
func explainMAAS(err error) Problem {
	found, remedy := maas.Explain(err)
	source := ""
	if known, is := errors.AsType[*scope.SourceError](err); is {
		source = known.Source + ": "
	}
	switch explained := strings.TrimSuffix(found+": "+remedy, ": "); {
	case errors.Is(err, maas.Unauthorized):
		return Problem{infrav1.CredentialsInvalidReason, source + explained, MendRetry}
	case errors.Is(err, maas.Untrusted):
		return Problem{infrav1.CertificateInvalidReason, source + explained, cmp.Or(maas.RetryAfter(err), MendRetry)}
	case maas.IsElsewhere(err):
		return Problem{infrav1.EndpointInvalidReason, source + explained, MendRetry}
	case errors.Is(err, maas.Gone):
		return Problem{infrav1.VMHostsNotSupportedReason, explained, MendRetry}
	case errors.Is(err, maas.Forbidden):
		if lacking := rights.Refusal(err); lacking != nil {
			return Problem{infrav1.EntitlementMissingReason, lacking.Error(), MendRetry}
		}
		return Problem{infrav1.MAASRefusedReason, explained, MendRetry}
	case errors.Is(err, maas.Exhausted):
		return Problem{infrav1.MAASRefusedReason, "MAAS refuses: " + maas.Message(err) +
			": free addresses there, or give the machine another subnet", MendRetry}
	case errors.Is(err, maas.Unaddressed):
		return Problem{infrav1.MAASRefusedReason, "MAAS refuses: " + strings.TrimSuffix(maas.Message(err), ".") +
			": correct the reserved IPs or the links of the machine's interfaces in MAAS, and check that a rack controller " +
			"is on its subnets", MendRetry}
	case errors.Is(err, maas.Unroutable):
		return Problem{infrav1.MAASRefusedReason, "MAAS refuses: " + maas.Message(err) +
			": check that a rack controller reaches the BMC, and the machine's power parameters in MAAS", MendRetry}
	case errors.Is(err, maas.Invalid), errors.Is(err, maas.Conflict), errors.Is(err, maas.NotFound):
		return Problem{infrav1.MAASRefusedReason, "MAAS refuses: " + maas.Message(err), CapacityRetry}
	case errors.Is(err, maas.Unavailable):
		return Problem{unavailable(err), explained, maas.RetryAfter(err)}
	}
	return Problem{infrav1.NotReadyReason, Brief(err.Error()), 0}
}

// Show sets a condition to False for the problem, which it returns.
func (p Problem) Show(to conditions.Setter, condition string) Problem {
	SetFalse(to, condition, p.Reason, "%s", p.Message)
	return p
}

// WaitError is the error of a reconcile that waits for something: it comes back with a growing backoff, and the log
// does not show it as an error.
type WaitError struct{ cause error }

// Error is that of the cause.
func (e *WaitError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *WaitError) Unwrap() error { return e.cause }

// OnlyWaits reports whether all that an error joins is waited for.
func OnlyWaits(err error) bool {
	isOther := func(part error) bool { return !guard.Is[*WaitError](part) }
	return err != nil && !slices.ContainsFunc(guard.Parts(err), isOther)
}

// Result returns what the work queue gets for a problem: when to requeue, or the error itself for a growing backoff.
// What has a reason of its own is a *WaitError.
func (p Problem) Result(err error) (ctrl.Result, error) {
	switch {
	case p.RetryAfter > 0:
		return ctrl.Result{RequeueAfter: wait.Jitter(p.RetryAfter, 0.2)}, nil // Spread the retries of machines.
	case err != nil && (p.Reason != infrav1.NotReadyReason || guard.Is[*machine.StaleVMHostsError](err)):
		return ctrl.Result{}, &WaitError{err}
	}
	return ctrl.Result{}, err
}

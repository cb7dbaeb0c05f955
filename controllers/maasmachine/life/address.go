// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// ofField adds the field that a static address is from to an error of it.
func ofField(l *Life, err error) error {
	if !guard.Is[*machine.AddressError](err) {
		return err
	}
	field := "spec.staticIP"
	if l.MaasMachine.Spec.StaticIPPoolRef != nil {
		field = "spec.staticIPPoolRef"
	}
	return fmt.Errorf("%s: %w", field, err)
}

// soleUser checks that no other MaasMachine is to have the static address: MAAS says so only when the other one has
// it, and two that are made at once would both take a machine.
func (s *Steps) soleUser(ctx context.Context, l *Life) error {
	address := l.MaasMachine.Status.StaticIP
	if address == "" {
		return nil
	}
	other, err := s.addressUsers.use(ctx, s.Client, l.Where(), address, l.MaasMachine)
	if err != nil || other == nil {
		return err
	}
	by := "a MaasMachine of another namespace"
	if other.Namespace == l.MaasMachine.Namespace {
		by = "MaasMachine " + other.Name
	}
	return ofField(l, machine.Taken(address, by))
}

// addressUsers are the MaasMachines that may take a machine for a static address, as far as this process knows. The
// zero value is ready.
type addressUsers struct {
	mu sync.Mutex
	by map[addressKey]addressUser
}

// addressKey is an address in a MAAS.
type addressKey struct{ where, address string }

type addressUser struct {
	client.ObjectKey
	uid types.UID
}

// use makes a MaasMachine the user of an address, unless another one is that, which it returns. That one is until it
// is gone, or has another address.
func (u *addressUsers) use(
	ctx context.Context, reader client.Reader, where, address string, m *infrav1.MaasMachine,
) (*infrav1.MaasMachine, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := addressKey{where, address}
	if user, is := u.by[key]; is && user.uid != m.UID {
		other := &infrav1.MaasMachine{}
		err := reader.Get(ctx, user.ObjectKey, other)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading MaasMachine %s: %w", user.Name, err)
		}
		if err == nil && other.UID == user.uid && (other.Spec.StaticIP == address || other.Status.StaticIP == address) {
			return other, nil
		}
	}
	if u.by == nil {
		u.by = map[addressKey]addressUser{}
	}
	u.by[key] = addressUser{client.ObjectKeyFromObject(m), m.UID}
	return nil, nil
}

// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Change makes a call that changes a machine, and stores MAAS's response. If that does not hold the machine, the next
// poll reads it. A call that fails changes nothing that is watched, and so wakes no reconciler: the caller knows when
// to retry. Until MAAS has been asked again, the machine is not known. Change doesn't start tracking the machine:
// nothing would ever end that for a machine that no reconciler observes. The error is the call's.
func (i *Inventory) Change(systemID string, call func(*maas.Client) (*maas.Machine, error)) (*maas.Machine, error) {
	asked := i.now()
	machine, err := call(i.client)
	i.changed(systemID, Observation{Known: machine != nil, Machine: machine}, asked, err)
	return machine, err
}

// Delete is Change for a call that returns nil when MAAS no longer has the machine: it is not asked for it again.
func (i *Inventory) Delete(systemID string, call func() error) error {
	asked := i.now()
	err := call()
	i.changed(systemID, Observation{Known: true}, asked, err)
	return err
}

// changed takes in the outcome of a call, which began when it was asked, and reports whether the observation is another
// one than before.
func (i *Inventory) changed(systemID string, now Observation, asked time.Time, err error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		return i.write(systemID, now, asked)
	}
	if isNews(err) {
		i.doubt(systemID)
	}
	return false
}

// isNews reports whether the error of a call means that the machine may not be as it was last seen: it was not, or MAAS
// took a deployment back, and with it the bridges that were made on the acquired machine.
func isNews(err error) bool {
	kinds := []maas.Kind{maas.NotFound, maas.Conflict, maas.Exhausted, maas.Unaddressed, maas.Unroutable}
	return !maas.HadNoEffect(err) ||
		slices.ContainsFunc(kinds, func(kind maas.Kind) bool { return errors.Is(err, kind) })
}

// Read reads a machine from MAAS now, and stores it (GET machines/{system_id}/, or devices/{system_id}/). Who reads it
// need not be who waits for a change of it. NotFound: it is gone, as MAAS does not list it either.
func (i *Inventory) Read(ctx context.Context, systemID string) (*maas.Machine, error) {
	asked := i.now()
	machine, err := i.get(ctx, i.client, systemID)
	err = i.client.ProveGone(ctx, systemID, err)
	if i.changed(systemID, Observation{Known: machine != nil, Machine: machine}, asked, err) {
		i.opts.Notify(systemID)
	}
	return machine, err
}

// ChangeVMHosts makes a call that changes VM hosts. The next VMHosts reads them again.
func (i *Inventory) ChangeVMHosts(call func(*maas.Client) error) error {
	defer i.DropVMHosts()
	return call(i.client)
}

// DropVMHosts makes the next VMHosts read them again: MAAS has one that is not known here.
func (i *Inventory) DropVMHosts() {
	i.vmHosts.Drop()
	i.hosting.Drop()
}

// DeleteDNSRecord makes a call that deletes the DNS record of a name. If it succeeds, the next DNSRecord knows that
// there is none. If it fails, that reads it again.
func (i *Inventory) DeleteDNSRecord(fqdn string, call func(*maas.Client) error) error {
	err := call(i.client)
	if err != nil {
		i.ForgetDNSRecord(fqdn)
		return err
	}
	i.records.At(fqdn).Set(nil)
	return nil
}

// ChangeDNSRecord makes a call that changes the DNS record of a name, and stores MAAS's response. If the call fails, or
// returns no record, the next DNSRecord reads it again. *WrongRecordError: MAAS returned another one.
func (i *Inventory) ChangeDNSRecord(fqdn string, call func(*maas.Client) (*maas.DNSResource, error)) error {
	record, err := call(i.client)
	if err == nil {
		err = checkName(fqdn, record)
	}
	if err != nil || record == nil {
		i.ForgetDNSRecord(fqdn)
		return err
	}
	i.records.At(fqdn).Set(record)
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"fmt"
	"net/url"

	"github.com/juju/gomaasapi/v2"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const othersKey = "chaosothers:3GmVtYxQeUcRbPwNsb:b7NfJ2hLqXzV5cKwTgRyS9dMuE4pA8Qj"

// others makes objects that are not ours: bare metal of other users, in our pool and in theirs, a machine of another
// management cluster, VMs on all VM hosts, a DNS record, and an address.
func others(ctx context.Context, box *sandbox.Sandbox) error {
	client, err := othersClient(box)
	if err != nil {
		return err
	}
	hosts, err := client.ListVMHosts(ctx)
	if err != nil {
		return fmt.Errorf("another user's VM hosts: %w", err)
	}
	var names []string
	for _, host := range hosts {
		names = append(names, host.Name)
	}
	for i, params := range []maas.AllocateParams{
		{Pool: "others"}, {Pool: "others", Comment: "deployed"}, {Pool: "capi", Comment: "deployed"},
		{Pool: "capi", AgentName: "capmaas/somebodyelse/worker", Comment: "deployed"},
	} {
		params.NotOnVMHosts = names
		m, err := client.AllocateMachine(ctx, maas.Unrecorded("a test"), params)
		if err != nil {
			return fmt.Errorf("another user's machine: %w", err)
		}
		if _, err := client.SetWorkloadAnnotations(ctx, maas.Unrecorded("a test"), m.SystemID, map[string]string{ownership.AnnotationOwner: fmt.Sprintf("somebody%d", i)}); err != nil {
			return fmt.Errorf("another user's machine: %w", err)
		}
		if params.Comment == "" {
			continue
		}
		if _, err := client.DeployMachine(ctx, maas.Unrecorded("a test"), m.SystemID, maas.DeployParams{DistroSeries: "ubuntu/jammy"}); err != nil {
			return fmt.Errorf("another user's machine: %w", err)
		}
	}
	if err := othersVMs(ctx, client, hosts); err != nil {
		return err
	}
	if _, err := client.CreateDNSResource(ctx, maas.Unrecorded("a test"), "www.maas.sim", []string{"10.77.2.253"}, 30); err != nil {
		return fmt.Errorf("another user's record: %w", err)
	}
	plain, err := gomaasapi.NewAuthenticatedClient(box.MAASURL+"/api/2.0/", othersKey)
	if err != nil {
		return fmt.Errorf("another user's client: %w", err)
	}
	if _, err := plain.Post(&url.URL{Path: "ipaddresses/"}, "reserve", url.Values{"ip": {"10.77.0.254"}}, nil); err != nil {
		return fmt.Errorf("another user's address: %w", err)
	}
	return settled(ctx, box.MAAS)
}

func othersClient(box *sandbox.Sandbox) (*maas.Client, error) {
	client, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: othersKey})
	if err != nil {
		return nil, fmt.Errorf("another user's client: %w", err)
	}
	return client, nil
}

// vmHosts are the names of the VM hosts by their ids.
func vmHosts(ctx context.Context, box *sandbox.Sandbox) (map[int]string, error) {
	client, err := othersClient(box)
	if err != nil {
		return nil, err
	}
	hosts, err := client.ListVMHosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the VM hosts: %w", err)
	}
	names := map[int]string{}
	for _, host := range hosts {
		names[host.ID] = host.Name
	}
	return names, nil
}

// othersVMs are one on each host, every other one deployed.
func othersVMs(ctx context.Context, client *maas.Client, hosts []maas.VMHost) error {
	for i, host := range hosts {
		id, err := client.Compose(ctx, maas.Unrecorded("a test"), host.ID, maas.ComposeParams{
			Hostname: "theirs-on-" + host.Name, Cores: 2, Memory: 2048, Storage: "root:10", ZoneID: host.Zone.ID, PoolID: host.Pool.ID, SkipCommissioning: true,
		})
		if err != nil {
			return fmt.Errorf("another user's VM: %w", err)
		}
		if i%2 == 0 {
			continue
		}
		if _, err := client.DeployMachine(ctx, maas.Unrecorded("a test"), id, maas.DeployParams{DistroSeries: "ubuntu/jammy"}); err != nil {
			return fmt.Errorf("another user's VM: %w", err)
		}
	}
	return nil
}

// settled waits until nothing is on its way in MAAS.
func settled(ctx context.Context, region *simulator.Simulator) error {
	before := ""
	return eventually.Wait(ctx, "MAAS to be quiet", func() (bool, string, error) {
		for _, m := range region.Machines() {
			switch m.Status {
			case "Ready", "Allocated", "Deployed":
			default:
				return false, m.Hostname + " is " + m.Status, nil
			}
			if power := map[bool]string{true: "on", false: "off"}[m.Running]; m.PowerType != "manual" && m.Power != power {
				return false, m.Hostname + " is turned " + power, nil
			}
		}
		last := before
		before = string(region.State())
		return last == before, "something changes", nil
	})
}

// SPDX-License-Identifier: Apache-2.0

package played

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Row is a difference between LXD's versions.
type Row struct {
	// ID is short, and Says is what newer versions do.
	ID, Says string
	// Since is the first version that does it. Until is the last one, or "".
	Since, Until string
	// Extensions of the API that the version reports since then.
	Extensions []string
	// Needs names a test of this repository, as package.Test, that would fail if what it tests did not know of it.
	Needs string
	// Play sends a call on, and changes it or the response.
	Play func(p *Proxy, c *call, next handler) *reply
}

// Rows are all differences that are played, the outermost first. The versions before 5.21 that have some of them, and
// other responses to a wait, are not played.
var Rows = []Row{
	{ID: "texts", Since: "5.21.0", Says: "refusals have other words", Play: otherWords,
		Needs: "pkg/lxdnode.TestWhatIsThereIsUsedOrReportedAndNeverChanged"},
	{ID: "wait failed", Since: "5.21.0", Says: "the wait for an operation that failed is an error, with the status 200", Play: waitFails,
		Needs: "pkg/lxdhost.TestAnImageThatIsNoneMakesNoVM"},
	{ID: "wait ended", Since: "5.21.0", Says: "the wait for an operation that still runs is an error, with the status 200", Play: waitEnds,
		Needs: "pkg/lxdhost.TestWithoutAnAnswerInTime"},
	{ID: "err_code", Since: "6.8", Says: "operations have the code of their error", Play: withCode,
		Needs: "pkg/lxdnode.TestLostRacesAreCheckedAgain"},
	{ID: "entity_url", Since: "6.8", Says: "operations have no resources, and what they are about in the metadata", Play: noResources,
		Needs: "pkg/lxdhost.TestAVMThatIsStillBeingMadeIsNotTakenForMade"},
	{ID: "made", Since: "6.7", Says: "the instance that an operation makes is in the metadata only", Play: madeInstance,
		Needs: "pkg/lxdhost.TestAVMThatIsStillBeingMadeIsNotTakenForMade"},
	{ID: "resources", Since: "5.21.0", Says: "operations name instances with their project", Play: namesProject,
		Needs: "pkg/lxdhost.TestAVMThatIsStillBeingMadeIsNotTakenForMade"},
	{ID: "about", Since: "5.21.0", Says: "the server describes itself, and more to a client that it does not trust", Play: aboutServer,
		Needs: "pkg/lxdhost.TestConnectSaysWhatIsWrong"},
	{ID: "uuid", Since: "6.6", Says: "the server has volatile.uuid, and takes no configuration without it", Play: serverUUID,
		Needs: "pkg/lxdnode.TestAddressMovesWithTheSettingUnlessItIsAnOperators"},
	{ID: "address of 6.6", Since: "6.6", Until: "6.6", Says: "of the configuration with an address that LXD can't listen on the rest stays", Play: keepRest,
		Needs: "pkg/lxdnode.TestAddressThatLXDCannotListenOnIsExplainedAndUndone"},
	{ID: "address", Since: "5.21.0", Says: "a configuration with an address that LXD can't listen on is undone", Play: putBack,
		Needs: "pkg/lxdnode.TestAddressThatLXDCannotListenOnIsExplainedAndUndone"},
	{ID: "identities", Since: "5.21.0", Says: "a client is told its identity, and whether groups give it rights", Play: identity,
		Extensions: []string{"access_management"}, Needs: "pkg/lxdhost.TestWhatIsSentToADirectHostIsInTheTable"},
	{ID: "trust token", Since: "5.21.3", Says: "trust tokens have a field of their own", Extensions: []string{"explicit_trust_token"},
		Needs: "test/simulator.TestLXDHostTakesATrustPassword"},
	{ID: "trust password", Since: "6.1", Says: "there is no trust password", Play: noPassword,
		Needs: "test/simulator.TestLXDHostTakesATrustPassword"},
	{ID: "certificate names", Since: "5.21.5", Says: "no two certificates have one name", Play: uniqueNames,
		Needs: "cmd/lxd-initializer.TestReplacementOfTheKeyPairKilledAtEachWrite"},
	{ID: "other projects", Since: "5.21.0", Says: "images and operations of a project that a key is not for are refused", Play: otherProjects,
		Needs: "pkg/lxdhost.TestTheCertificateSeesNothingElse"},
	{ID: "projects", Since: "5.21.0", Says: "projects have features.storage.buckets", Play: buckets,
		Needs: "pkg/lxdnode.TestWhatIsThereIsUsedOrReportedAndNeverChanged"},
	{ID: "virtual-machines", Since: "6.7", Says: "virtual-machines and containers are only among instances", Play: onlyInstances,
		Needs: "test/simulator.TestLXDHostWithARestrictedKeyAndProject"},
	{ID: "boot.mode", Since: "6.7", Says: "security.secureboot is refused, and has become boot.mode", Play: bootMode,
		Extensions: []string{"instance_boot_mode"}, Needs: "pkg/lxdhost.TestTheLifeOfAClone"},
	{ID: "names", Since: "5.21.0", Says: "an instance's bad name is an error of the server", Play: badName,
		Needs: "pkg/lxdhost.TestCloneChecksWhatLXDDoesNot"},
	{ID: "taken names", Since: "5.21.0", Says: "an instance's name that is taken is refused at once", Play: takenName,
		Needs: "pkg/lxdhost.TestAnotherClientIsFaster"},
	{ID: "volatile", Since: "5.21.0", Says: "a VM has more volatile keys", Play: volatile,
		Needs: "pkg/lxdhost.TestTheLifeOfAClone"},
	{ID: "agent", Since: "5.21.0", Says: "a running VM without an agent is changed without an error", Play: withoutAgent,
		Needs: "pkg/lxdhost.TestAdopt"},
	{ID: "hugepages", Since: "6.6", Until: "6.7", Says: "a restricted project takes limits.memory.hugepages", Play: hugepages,
		Needs: "pkg/lxdnode.TestARestrictedProjectDoesNotHoldTheKey"},
	{ID: "volumes", Since: "6.6", Says: "changes of volumes are operations", Play: volumesLater,
		Extensions: []string{"storage_and_profile_operations"}, Needs: "pkg/lxdhost.TestFurtherDisks"},
	{ID: "profiles", Since: "6.6", Says: "changes of profiles are operations", Play: profilesLater,
		Needs: "pkg/lxdnode.TestWhatIsThereIsUsedOrReportedAndNeverChanged"},
	{ID: "project deletion", Since: "6.7", Says: "the deletion of a project is an operation", Play: projectsLater,
		Extensions: []string{"project_delete_operation"}, Needs: "test/simulator.TestLXDHostThatLostItsProjectComposesAfterARefresh"},
	{ID: "pools", Since: "6.8", Says: "changes of pools and networks are operations", Play: poolsLater,
		Extensions: []string{"storage_and_network_operations"}, Needs: "pkg/lxdnode.TestFreshNodeIsPreparedOnce"},
}

// ofVersion returns the rows that hold for a version.
func ofVersion(version string) (hold []Row, err error) {
	wanted, err := parse(version)
	if err != nil {
		return nil, err
	}
	for _, row := range Rows {
		first, _ := parse(row.Since)
		last, _ := parse(cmp.Or(row.Until, version))
		if slices.Compare(first, wanted) <= 0 && slices.Compare(wanted, last) <= 0 {
			hold = append(hold, row)
		}
	}
	return hold, nil
}

// since reports whether the version that is played is another, or newer.
func (p *Proxy) since(version string) bool {
	first, _ := parse(version)
	now, _ := parse(p.options.Version)
	return slices.Compare(first, now) <= 0
}

func parse(version string) (numbers []int, err error) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("%q is no version of LXD, such as 6.9: %w", version, err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// SPDX-License-Identifier: Apache-2.0

package replay

// Protocol are the transitions that all models have in common, of protocol.pml. VMs, and machines that are kept, are
// held against these alone: what MAAS and the hosts show is not replayed for them.
var Protocol = &Table{
	Model: "protocol", Walks: []string{"vmhost", "image"},
	Refuses: []string{"NO_SETTLE", "NO_SEND_WITHIN"},
	Several: []string{"compose", "remove", "start_vm", takeOver, link, "interfaces", "bridge"},
	Rows: []Row{
		always(Begins), always(Settles), always(Answered), always(Forgets),
		{Name: "is deleted", Kind: Deletes, When: func(s *State, _ Event) bool { return s.There }},
		{Name: "records what is not under way", Kind: Records, When: func(s *State, e Event) bool {
			return s.There && !s.mayCome(e.Op)
		}},
		{Name: "records late-claim: what is left of an earlier call", Kind: Records, Ops: []string{"late-claim"},
			Beyond: beside, When: func(s *State, _ Event) bool { return s.There }},
		{Name: "records once more what may be repeated", Kind: Records, Ops: repeated, Beyond: leftOut,
			When: func(s *State, _ Event) bool { return s.There }},
		{Name: "sends what is recorded", Kind: Sends, When: isRecorded},
		{Name: "sends what the MaasCluster records of a machine that is kept", Kind: Sends, Beyond: beside,
			When: func(s *State, _ Event) bool { return !s.There }},
		{Name: "machine is", Kind: Machine, Beyond: beside, When: func(*State, Event) bool { return true }},
		{Name: "MAAS does", Kind: Does, Beyond: beside, When: func(*State, Event) bool { return true }},
		{Name: "stores", Kind: Stores, Beyond: beside, When: func(s *State, _ Event) bool { return s.There }},
		{Name: "sets aside", Kind: SetsAside, Beyond: beside, When: func(s *State, _ Event) bool { return s.There }},
		{Name: "is rid of", Kind: IsRid, Beyond: beside, When: func(*State, Event) bool { return true }},
		{Name: "is releasing", Kind: Releasing, Beyond: beside, When: func(*State, Event) bool { return true }},
		{Name: "finishes: nothing may come", Kind: Finishes, When: func(s *State, _ Event) bool {
			return s.There && s.Deleted && !s.unsettled()
		}},
	},
}

const beside = "it is of the models that include protocol.pml"

// isRecorded: a call is recorded before it is sent, and sent soon after or not at all.
func isRecorded(s *State, e Event) bool {
	entry, is := s.Pending[e.Op]
	return is && entry.Unsent && !entry.Settled && (e.At.IsZero() || !e.At.After(entry.Until))
}

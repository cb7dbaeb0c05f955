// SPDX-License-Identifier: Apache-2.0

package replay

// The operations of metal.pml, as they are recorded.
const (
	allocate = "allocate"
	claim    = "claim"
	deploy   = "deploy"
	link     = "link"
	release  = "release"

	takeOver = "take-over" // of keep.pml
)

var inModel = []string{allocate, claim, deploy, link, release}

// repeated are the operations that others need not wait for: record.Op.mayRepeat.
var repeated = []string{"exclude", "quarantine", "publish"}

// changes are the operations that change a machine and that the model leaves out, see ADR 35.
var changes = []string{"storage", "bridge", "interfaces", "annotate", "power-off", "power-on", "abort",
	"exit-rescue-mode", "test", "mark-broken", "exclude", "quarantine"}

const vanished = "a MAAS that does not have a machine any more is left out of the model"

const leftOut = "what is on a machine, its power and its failures are left out of the model"

// Metal are the transitions of metal.pml.
var Metal = &Table{
	Model: "metal", Walks: []string{"metal"}, Acquires: []string{allocate, claim, release},
	Several: append([]string{link}, changes...),
	Rows: []Row{
		always(Begins), always(Settles), always(Releasing),
		{Name: "is deleted", Kind: Deletes, When: func(s *State, _ Event) bool { return s.There }},

		{Name: "records allocate: it has none, nothing may come, and none was found", Kind: Records,
			Ops: []string{allocate}, When: func(s *State, _ Event) bool {
				return wanted(s) && s.SystemID == "" && len(s.Unused) == 0 && !s.unsettled(repeated...) && s.SawNone
			}},
		{Name: "records claim: of the machine in the spec", Kind: Records, Ops: []string{claim},
			When: func(s *State, _ Event) bool { return wanted(s) && s.SystemID != "" && !s.mayCome(claim) }},
		{Name: "records deploy: of what is proven to be ours", Kind: Records, Ops: []string{deploy},
			When: func(s *State, _ Event) bool {
				return wanted(s) && s.SystemID != "" && s.sawOurs(s.SystemID) && !s.mayCome(deploy)
			}},
		{Name: "records link: of what is proven to be ours", Kind: Records, Ops: []string{link},
			When: func(s *State, _ Event) bool {
				return wanted(s) && s.SystemID != "" && s.sawOurs(s.SystemID) && !s.mayCome(link)
			}},
		{Name: "records release: it is proven to be ours, and nothing else may come", Kind: Records,
			Ops: []string{release}, When: func(s *State, _ Event) bool {
				return s.There && (s.Deleted || len(s.Unused) > 0) && mayLetGo(s)
			}},
		{Name: "records release: of what can't be used for now", Kind: Records, Ops: []string{release},
			Beyond: "a machine that can't be deployed is given back without a deletion",
			When:   func(s *State, _ Event) bool { return wanted(s) && mayLetGo(s) }},
		{Name: "records claim: to undo what was done to it", Kind: Records, Ops: []string{claim}, Beyond: leftOut,
			When: func(s *State, _ Event) bool {
				return s.There && (s.Deleted || len(s.Unused) > 0) && !s.mayCome(claim)
			}},
		{Name: "records link: to undo what was done to it", Kind: Records, Ops: []string{link}, Beyond: leftOut,
			When: func(s *State, _ Event) bool { return s.There && s.anyOurs() && !s.mayCome(link) }},
		{Name: "records a change that the model leaves out", Kind: Records, Ops: changes, Beyond: leftOut,
			When: func(s *State, e Event) bool {
				return s.There && (!s.mayCome(e.Op) || isOneOf(e.Op, repeated))
			}},

		{Name: "sends what is recorded", Kind: Sends, When: isRecorded},
		{Name: "MAAS does allocate, claim", Kind: Does, Ops: []string{allocate, claim}, When: flies},
		{Name: "machine is", Kind: Machine, When: func(_ *State, e Event) bool { return !e.On || !e.Look.ours() }},
		{Name: "machine is ours: the object is there, and has no other", Kind: Machine, Promise: true,
			When: func(s *State, e Event) bool {
				for id, look := range s.Machines {
					if id != e.Machine && look.Owned {
						return false
					}
				}
				return s.There
			}},
		{Name: "MAAS does deploy, link, release: to what is ours", Kind: Does,
			Ops: []string{deploy, link, release}, Promise: true, When: func(s *State, e Event) bool {
				return flies(s, e) && (e.Look.Owned || !hit(e))
			}},
		{Name: "MAAS does a change that the model leaves out", Kind: Does, Ops: changes, Beyond: leftOut,
			When: flies},
		always(Answered),

		{Name: "forgets what was answered", Kind: Forgets, Ops: inModel,
			When: func(s *State, e Event) bool { return s.Pending[e.Op].Answered }},
		{Name: "forgets allocate, claim: what was acquired is seen", Kind: Forgets, Ops: []string{allocate, claim},
			When: func(s *State, _ Event) bool { return s.anyOurs() }},
		{Name: "forgets deploy: its effect is seen", Kind: Forgets, Ops: []string{deploy},
			When: func(s *State, _ Event) bool {
				return saw(s.Saw, s.SystemID, func(l Look) bool { return l.Status == Deploying || l.Status == Deployed })
			}},
		{Name: "forgets what can't hit a machine that MAAS does not have", Kind: Forgets, Beyond: vanished,
			Ops:  []string{claim, deploy, link, release},
			When: func(s *State, _ Event) bool { return s.SystemID != "" && s.isGone(s.SystemID) }},
		{Name: "forgets allocate: the settle time is over, and the spec names another machine", Kind: Forgets,
			Ops: []string{allocate}, Beyond: "people name a machine while another one is asked for",
			When: func(s *State, _ Event) bool { return s.SystemID != "" && !s.mayCome(allocate) }},
		{Name: "forgets what was not sent", Kind: Forgets, Ops: inModel,
			Beyond: "the model has a manager die that can't send a call",
			When:   func(s *State, e Event) bool { return s.Pending[e.Op].Unsent && s.Pending[e.Op].Flying == 0 }},
		{Name: "forgets a change that the model leaves out", Kind: Forgets, Ops: changes, Beyond: leftOut,
			When: func(*State, Event) bool { return true }},

		{Name: "stores the machine that was seen to be ours", Kind: Stores, When: func(s *State, e Event) bool {
			return s.There && s.SystemID == "" && s.sawOurs(e.Machine)
		}},
		{Name: "sets aside a machine that was seen to be ours", Kind: SetsAside,
			When: func(s *State, e Event) bool { return s.There && s.sawOurs(e.Machine) }},
		{Name: "is rid of what is Ready again", Kind: IsRid, When: func(s *State, e Event) bool {
			return !s.unsettled(repeated...) && s.sawSettled(e.Machine, isReady)
		}},
		{Name: "is rid of what MAAS does not have any more", Kind: IsRid, Beyond: vanished,
			When: func(s *State, e Event) bool { return s.isGone(e.Machine) }},
		{Name: "is rid of what is not ours any more", Kind: IsRid,
			Beyond: "a person releases it: the search PERSON, which is not promised",
			When: func(s *State, e Event) bool {
				return !s.mayCome(allocate) && !s.mayCome(claim) && sawNotMine(s, e.Machine)
			}},

		{Name: "finishes: it never asked for one", Kind: Finishes, When: func(s *State, _ Event) bool {
			_, asked := s.Pending[allocate]
			_, claimed := s.Pending[claim]
			return mayFinish(s) && s.SystemID == "" && !asked && !claimed
		}},
		{Name: "finishes: none was found, and nothing may come", Kind: Finishes,
			When: func(s *State, _ Event) bool { return mayFinish(s) && s.SystemID == "" && s.SawNone }},
		{Name: "finishes: its machine is Ready again", Kind: Finishes, When: func(s *State, _ Event) bool {
			return mayFinish(s) && s.sawSettled(s.SystemID, isReady)
		}},
		{Name: "finishes: MAAS does not have its machine any more", Kind: Finishes, Beyond: vanished,
			When: func(s *State, _ Event) bool { return mayFinish(s) && s.SystemID != "" && s.isGone(s.SystemID) }},
		{Name: "finishes: its machine is not ours any more", Kind: Finishes, When: func(s *State, _ Event) bool {
			return mayFinish(s) && s.SystemID != "" && sawNotMine(s, s.SystemID)
		}},
	},
}

func always(kind Kind) Row {
	return Row{Name: string(kind), Kind: kind, When: func(*State, Event) bool { return true }}
}

func isOneOf(op string, ops []string) bool {
	for _, one := range ops {
		if one == op {
			return true
		}
	}
	return false
}

// wanted: a call is recorded on the unchanged object, and so by one who knows of its deletion.
func wanted(s *State) bool { return s.There && !s.Deleted }

// mayLetGo is Record.LetGo, after the proof that the machine is the object's to release.
func mayLetGo(s *State) bool { return s.anyOurs() && !s.unsettled(repeated...) }

func mayFinish(s *State) bool {
	return s.There && s.Deleted && len(s.Unused) == 0 && !s.unsettled()
}

func (s *State) isGone(id string) bool {
	look, known := s.Machines[id]
	return !known || look.Status == Gone
}

func isReady(l Look) bool { return l.Status == Ready }

// sawNotMine: a machine that is being released may be the object's, without its mark.
func sawNotMine(s *State, id string) bool {
	return s.sawSettled(id, func(l Look) bool {
		return l.Status != InRelease && (!l.Owned || (!l.Marked && !s.Releasing))
	})
}

// flies reports whether such a call is under way. Its record may be gone: others have seen its effect.
func flies(s *State, e Event) bool {
	entry, recorded := s.Pending[e.Op]
	return !recorded || entry.Flying > 0
}

// hit reports whether MAAS does something to a machine that is so.
func hit(e Event) bool {
	switch e.Op {
	case release:
		return e.Look.Status == Allocated || e.Look.Status == Deploying || e.Look.Status == Deployed
	default:
		return e.Look.Status == Allocated || e.Look.Status == Ready
	}
}

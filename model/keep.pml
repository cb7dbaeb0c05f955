// SPDX-License-Identifier: Apache-2.0
//
// A machine that is kept (docs/adr/0031-keep.md): its MaasMachine, FORMER, is deleted; the record of the MaasCluster
// remembers it; the MaasMachine NEXT takes it, or it is given back. Another user takes it whenever MAAS has it Ready.

#define FORMER 0
#define NEXT 1
#define CLUSTER 2
#define OBJECTS 3
#define POWER_OFF 0
#define TAKE_OVER 1             // a release and a claim
#define LATE_CLAIM 2            // what may be left of it once the release has taken effect
#define CLAIM 3
#define RELEASE 4
#define OPS 5
mtype = { power_off, take_over, late_claim, claim, release };
#define WORD(op) ((op) == POWER_OFF -> power_off : ((op) == TAKE_OVER -> take_over : \
    ((op) == LATE_CLAIM -> late_claim : ((op) == CLAIM -> claim : release))))
#define COVERS(op, as) ((as) == (op) || ((op) == LATE_CLAIM && (as) == TAKE_OVER))
#define SENT(w) skip            // a release and a claim follow one record

// NEXT's spec.systemID, and whether its release began; the MaasCluster's entry: whether NEXT takes the machine, whether
// it is given back, and whether MAAS was about to be asked for its release.
bit systemID, releasing, kept, taken, givenBack, giving;
bit mySystemID[6], myReleasing[6], myKept[6], myTaken[6], myGivenBack[6], myGiving[6];
#define WRITE_FIELDS(w, o) if :: o == CLUSTER -> kept = myKept[w]; taken = myTaken[w]; givenBack = myGivenBack[w]; \
    giving = myGiving[w] :: o == NEXT -> systemID = mySystemID[w]; releasing = myReleasing[w] :: else fi
#define READ_FIELDS(w, o) if :: o == CLUSTER -> myKept[w] = kept; myTaken[w] = taken; myGivenBack[w] = givenBack; \
    myGiving[w] = giving :: o == NEXT -> mySystemID[w] = systemID; myReleasing[w] = releasing :: else fi
#define FIELDS_DIFFER(w, o) ((o == NEXT && (systemID != mySystemID[w] || releasing != myReleasing[w])) || \
    (o == CLUSTER && (kept != myKept[w] || taken != myTaken[w] || \
    givenBack != myGivenBack[w] || giving != myGiving[w])))
#define CLEAR_FIELDS(w) mySystemID[w] = 0; myReleasing[w] = 0

#include "protocol.pml"

// MAAS's machine. A mark goes when a release begins.
#define READY 0
#define ALLOCATED 1
#define DEPLOYED 2
#define RELEASING 3
#define OTHERS 9
byte status = DEPLOYED, owner = FORMER + 1; bit marked = 1, powered = 1;
bit fits = 1;                   // an owner lacks a Machine, and the time is not over
#define OURS(o) (owner == (o) + 1 && marked)

// Cluster.Merge: a change of the entry, on top of what others have recorded. Whoever has an older copy stores nothing.
inline merged() {
    d_step {
        x = 0;
        do
        :: x < WORKERS -> if :: OBJECT(x) == CLUSTER -> sameObject[x] = 0; sameRecord[x] = 0 :: else fi; x++
        :: else -> break
        od; x = 0
    }
}
inline drop() {
    kept = 0; taken = 0; givenBack = 0; giving = 0; merged();
    promise(KeptIsKnown, owner != FORMER + 1 || there[FORMER])
}

// Calls.Acquired: what acquires has taken effect. If a claim may be late, a later one may be what did not: it is late
// now.
inline acquired(w) {
#ifndef NO_LATER_CLAIM
    if
    :: COPY(w, LATE_CLAIM) != 0 && COPY(w, CLAIM) != 0 ->
        if :: COPY(w, CLAIM) == MAY_COME -> COPY(w, LATE_CLAIM) = MAY_COME :: else fi;
        x = 0;
        do
        :: x < CALLS -> if :: state[x] != FREE && recordedAs[x] == CLAIM -> recordedAs[x] = LATE_CLAIM :: else fi; x++
        :: else -> break
        od; x = 0
    :: else
    fi;
#endif
    COPY(w, TAKE_OVER) = 0; COPY(w, CLAIM) = 0
}

// What a deletion does with a machine that the object has: it is given back.
inline giveBack(w, o, mark, began) {
    atomic {
        seen = status;
        if
        :: seen == READY -> unsettled(w); if :: is -> goto close :: else -> goto nothing fi
        :: seen == RELEASING -> goto close
        :: else
        fi
    };
    atomic {
        if :: status != seen -> goto close :: else fi;
        is = (owner == mark + 1 && (marked || began));
        if
        :: !is && status == seen -> unsettled(w); if :: is -> goto close :: else -> goto nothing fi
        :: else
        fi;
        acquired(w);
#ifndef NO_LET_GO
        unsettled(w); if :: is -> goto close :: else fi;
#endif
        began = 1
    };
    grant(w, o, RELEASE); send(w, o, RELEASE, RELEASE, mark); await(w); ended(w, o, RELEASE, before); goto close
}

proctype Former(byte w; byte o) {
    LOCALS; byte seen; bit began;
start:
    atomic {
        permit[w] = 0; seen = 0; answer = 0; before = 0; is = 0; call = 0; x = 0; began = (PENDING(o, RELEASE) != 0);
        if :: !there[o] -> goto gone :: there[o] -> open(w, o) fi
    }
    skip;                                // a reconcile takes time, and others act meanwhile
    atomic {
#ifndef NO_KEPT_STAYS                    // an earlier reconcile has kept it: NEXT may be taking it
        if :: kept && !givenBack -> goto is_kept :: else fi;
#endif
        if :: status == DEPLOYED && OURS(FORMER) && !began && fits -> skip :: else -> goto release_it fi
    }
    // Keep
    if
    :: powered ->
        grant(w, o, POWER_OFF); send(w, o, POWER_OFF, POWER_OFF, 0); await(w); ended(w, o, POWER_OFF, before);
        goto close
    :: !powered
    fi;
#ifndef NO_KEEP_SETTLED
    atomic { unsettled(w); if :: is -> goto close :: else fi };
#endif
#ifndef NO_KEEP_RECORD
    atomic {
        if
        :: kept && givenBack -> goto release_it
        :: kept && !givenBack
        :: !kept -> kept = 1; taken = 0; givenBack = 0; giving = 0; merged(); printf("EV the machine is kept\n")
        fi
    };
#endif
    if :: atomic { FAULT; goto start } :: skip fi;                              // it dies before the finalizer goes
is_kept:
    atomic { COPY(w, POWER_OFF) = 0; COPY(w, RELEASE) = 0; goto nothing };      // MachineGone
release_it:
    giveBack(w, o, FORMER, began);
nothing:
    atomic { mayFinish(w, o); promise(KeptIsKnown, owner != FORMER + 1 || kept); goneNow(w, o); goto gone };
close:
    atomic { closeRecord(w, o); goto start };
gone:
    skip
}

proctype Next(byte w; byte o) {
    LOCALS; byte seen; bit former;
start:
    atomic {
        permit[w] = 0; seen = 0; former = 0; answer = 0; before = 0; is = 0; call = 0; x = 0;
        if :: !there[o] -> goto gone :: there[o] -> open(w, o) fi
    }
    skip;                                // a reconcile takes time, and others act meanwhile
    atomic {
        if :: knowsDeleted[w] -> goto deletion :: else fi;
        if :: mySystemID[w] -> goto end_has :: else fi
    }
    // Succession
    atomic {
        if
        :: kept && (taken || !givenBack) -> taken = 1; former = giving; merged(); printf("EV NEXT takes it\n")
        :: else -> goto adoption
        fi
    };
    atomic {                             // succeed
        seen = status;
#ifndef NO_LATE_CLAIM                    // Reclaim
        if
        :: (seen == READY || seen == RELEASING) && COPY(w, TAKE_OVER) != 0 ->
            COPY(w, LATE_CLAIM) = COPY(w, TAKE_OVER); COPY(w, TAKE_OVER) = 0
        :: else
        fi;
#endif
        if
        :: seen == RELEASING -> goto close
        :: seen == READY -> goto claimFree
        :: OURS(NEXT) -> goto inherit
        :: else
        fi
    }
    atomic {                             // takeOver
        if :: status != seen -> goto close :: else fi;
        is = (owner == FORMER + 1 && (marked || former));
#ifdef NO_PROVE_FORMER
        is = 1;
#endif
        if
        :: !is -> if :: kept && taken -> drop() :: else fi; goto close                      // lose
        :: is && seen != DEPLOYED ->                                                        // returnKept
            unsettled(w); if :: is -> goto close :: else fi;
            if :: kept && taken -> taken = 0; givenBack = 1; merged() :: else fi; goto close
        :: is && seen == DEPLOYED ->
            if :: kept && taken -> giving = 1; merged() :: else -> goto close fi
        fi
    }
    atomic { unsettled(w); if :: is -> goto close :: else fi };                             // LetGo
    grant(w, o, TAKE_OVER); send(w, o, TAKE_OVER, RELEASE, FORMER); await(w);
    if :: answer == 0 -> ended(w, o, TAKE_OVER, before); goto close :: else fi;
    send(w, o, TAKE_OVER, CLAIM, NEXT); await(w);
    if :: answer == 0 -> ended(w, o, TAKE_OVER, before); goto close :: else -> goto inherit fi;
claimFree:
    grant(w, o, CLAIM); send(w, o, CLAIM, CLAIM, NEXT); await(w);
    if :: answer == 0 -> ended(w, o, CLAIM, before); goto close :: else fi;
inherit:
    atomic {
        beginStore(w, o); keepSettled(w, o); acquired(w); mySystemID[w] = 1; write(w, o);
        printf("EV NEXT stores the machine's id\n")
    }
    atomic { if :: kept && taken -> drop() :: else fi; goto close };
adoption:
    atomic {                             // it asks for another one if it has none: not in this model
        if
        :: OURS(NEXT) -> goto inherit
        :: else -> goto close
        fi
    };
end_has:                                 // it runs
    atomic { deleted[o] -> goto start };

deletion:
    if
    :: mySystemID[w] -> giveBack(w, o, NEXT, myReleasing[w])
    :: else
    fi;
    atomic {
        if
        :: COPY(w, TAKE_OVER) == 0 && COPY(w, CLAIM) == 0 && COPY(w, LATE_CLAIM) == 0 -> goto nothing
        :: else
        fi;
        if :: OURS(NEXT) -> goto inherit :: else fi;
        unsettled(w); if :: is -> goto close :: else fi
    };
nothing:
    atomic { mayFinish(w, o); promise(NothingLeft, owner != NEXT + 1); goneNow(w, o); goto gone };
close:
    atomic { closeRecord(w, o); goto start };
gone:
    skip
}

proctype Keeper(byte w; byte o) {
    LOCALS; byte seen;
start:
end:
    atomic { kept -> permit[w] = 0; seen = 0; answer = 0; before = 0; is = 0; call = 0; x = 0; open(w, o) }
    skip;                                // a reconcile takes time, and others act meanwhile
    atomic {
        if
        :: myTaken[w] && !there[NEXT] -> if :: kept && taken -> taken = 0; merged() :: else fi; goto start
        :: myTaken[w] && there[NEXT] && systemID -> if :: kept && taken -> drop() :: else fi; goto start
        :: myTaken[w] && there[NEXT] && !systemID -> goto start
        :: !myTaken[w]
        fi
    }
    atomic {
        if :: !myGivenBack[w] && fits -> goto start :: else fi;
        if
        :: !myGivenBack[w] ->            // it is decided anew on what is recorded now
#ifdef NO_TAKEN_BY
            givenBack = 1; merged()
#else
            if :: kept && !taken -> givenBack = 1; merged() :: else -> goto start fi
#endif
        :: else
        fi;
        if
#ifndef NO_FORMER_GONE
        :: there[FORMER] -> goto start
#endif
        :: else -> open(w, o)
        fi
    }
    giveBack(w, o, FORMER, myGiving[w]);
nothing:
    atomic {
        beginStore(w, o); drop(); x = 0;
        do :: x < OPS -> PENDING(o, x) = 0; x++ :: else -> break od; x = 0; goto start
    };
close:
    atomic { closeRecord(w, o); goto start }
}

inline execute(i) {
    printf("EV MAAS does %e, of %d\n", WORD(kind[i]), forObject[i]);
    if
    :: kind[i] == POWER_OFF -> promise(NothingOfOthers, owner == 0 || owner == FORMER + 1); powered = 0; result[i] = 1
    :: kind[i] == CLAIM ->
        if
        :: status == READY ->
            promise(NothingForNobody, there[NEXT]);
            status = ALLOCATED; owner = NEXT + 1; marked = 1; result[i] = 1
        :: else
        fi
    :: kind[i] == RELEASE ->
        if
        :: status == ALLOCATED || status == DEPLOYED ->
            promise(NothingOfOthers, owner == target[i] + 1);
            marked = 0; result[i] = 1; if :: powered -> status = RELEASING :: else -> status = READY; owner = 0 fi
        :: else
        fi
    fi;
    if :: caller[i] == NOBODY -> free(i) :: else -> state[i] = ANSWERED fi
}
active proctype MAAS() {
end:
    do
    :: atomic { state[0] == FLIES -> execute(0) }
    :: atomic { state[1] == FLIES -> execute(1) }
#if CALLS > 2
    :: atomic { state[2] == FLIES -> execute(2) }
#endif
    :: atomic { status == RELEASING -> status = READY; owner = 0; marked = 0; powered = 0; printf("EV it is Ready\n") }
    :: atomic { powered && owner == FORMER + 1 -> powered = 0; printf("EV somebody switches it off\n") }
    :: atomic { status == READY -> status = DEPLOYED; owner = OTHERS; printf("EV another user takes it\n") }
    :: atomic { owner == OTHERS -> status = READY; owner = 0; printf("EV the other user releases it\n") }
    :: atomic { fits -> fits = 0; printf("EV nobody lacks a Machine any more, or the time is over\n") }
    od
}
active proctype Time() {
    byte x;
end:
    do
    SETTLE(FORMER, POWER_OFF) SETTLE(FORMER, RELEASE)
    SETTLE(NEXT, TAKE_OVER) SETTLE(NEXT, LATE_CLAIM) SETTLE(NEXT, CLAIM) SETTLE(NEXT, RELEASE)
    SETTLE(CLUSTER, RELEASE)
    od
}
active proctype User() {
    byte x;
    if :: delete(NEXT) :: skip fi
}
init {
    atomic {
        there[FORMER] = 1; there[NEXT] = 1; there[CLUSTER] = 1; deleted[FORMER] = 1;
        run Former(0, FORMER); run Next(1, NEXT); run Keeper(2, CLUSTER);
#if MANAGERS > 1
        run Former(3, FORMER); run Next(4, NEXT); run Keeper(5, CLUSTER)
#endif
    }
}

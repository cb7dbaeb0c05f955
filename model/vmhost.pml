// SPDX-License-Identifier: Apache-2.0
//
// A VM that MAAS composes on one of its VM hosts. MAAS forgets a machine that it deletes, and the host may keep the VM;
// anybody's refresh of the host enlists it again, as nobody's, with another id. One host, one object.
//
//   LATE_CLAIM  also promises that no claim of a VM comes late: it is not recorded, see record.ChangeVM

#define COMPOSE 0
#define REMOVE 1
#define CLAIM 2                 // never recorded
#define OPS 2
mtype = { compose, remove, claim };
#define WORD(op) ((op) == COMPOSE -> compose : ((op) == REMOVE -> remove : claim))
#ifdef NO_SETTLE
#define NO_SETTLE_FINAL
#endif

// Beside its calls an object has: the host, which may have the VM; and spec.systemID.
bit mayBeOnHost, systemID, myHost[2], mySystemID[2];
#define WRITE_FIELDS(w, o) mayBeOnHost = myHost[w]; systemID = mySystemID[w]
#define READ_FIELDS(w, o) myHost[w] = mayBeOnHost; mySystemID[w] = systemID
#define FIELDS_DIFFER(w, o) (mayBeOnHost != myHost[w] || systemID != mySystemID[w])
#define CLEAR_FIELDS(w) myHost[w] = 0; mySystemID[w] = 0

#include "protocol.pml"

// The host, and MAAS's machine for its VM. A refresh gives another id, modulo 4: a late call for an earlier one is
// waited for, or hits nothing.
#define NONE 0
#define FREE_VM 1               // nobody's
#define OURS 2                  // claimed
#define THEIRS 3                // another user's
bit vm, wasTheirs;              // what another user has had may stay
byte machine, id;
inline enlist() { if :: vm && machine == NONE -> machine = FREE_VM; id = (id + 1) % 4 :: else fi }

#if defined(NO_PROVE)
#define MAY_DELETE(seen) (seen != NONE)
#elif defined(NO_CLAIM_FIRST)   // nobody's VM is not claimed before it is deleted
#define MAY_DELETE(seen) (seen == OURS || seen == FREE_VM)
#else
#define MAY_DELETE(seen) (seen == OURS)
#endif

inline storeVM(w, o) {
    atomic {
        beginStore(w, o); keepSettled(w, o); COPY(w, COMPOSE) = 0; mySystemID[w] = 1; write(w, o);
        printf("EV manager %d stores the VM's id\n", MANAGER(w))
    }
}
inline claimVM(w, o) {          // may be repeated, and so needs no record
    atomic { put(w, o, CLAIM, CLAIM, i); printf("EV manager %d claims the VM\n", MANAGER(w)) };
    await(w)
}

proctype Worker(byte w; byte o) {
    LOCALS; byte seen, i;
start:
    atomic {
        permit[w] = 0; seen = 0; i = 0; answer = 0; before = 0; is = 0; call = 0; x = 0;
        if :: !there[o] -> goto gone :: there[o] -> open(w, o) fi
    }
    atomic {                             // by its hostname, or its id
        seen = machine; i = id;
        if :: knowsDeleted[w] -> goto deletion :: else fi
    }
    if
    :: (seen == FREE_VM || seen == OURS) && !mySystemID[w] -> storeVM(w, o); goto close     // adoption
    :: seen == FREE_VM && mySystemID[w] -> claimVM(w, o); goto close
    :: (seen == OURS && mySystemID[w]) || seen == THEIRS || (seen == NONE && mySystemID[w]) -> goto close
    :: seen == NONE && !mySystemID[w]
    fi;
#ifndef NO_SETTLE
    atomic { unsettled(w); if :: is -> goto close :: else fi };
#endif
    atomic { if :: myHost[w] && vm -> enlist(); goto close :: else fi };                    // Recovery: a refresh
    myHost[w] = 1;
    grant(w, o, COMPOSE); send(w, o, COMPOSE, COMPOSE, 0); await(w);
    if :: answer -> storeVM(w, o) :: else fi;
    goto close;

deletion:
    if :: !myHost[w] && COPY(w, COMPOSE) == 0 && COPY(w, REMOVE) == 0 -> goto nothing :: else fi;
    if
    :: MAY_DELETE(seen) ->
        myHost[w] = 1;
        grant(w, o, REMOVE); send(w, o, REMOVE, REMOVE, i); await(w); ended(w, o, REMOVE, 0); goto close
    :: seen == FREE_VM && !MAY_DELETE(seen) -> claimVM(w, o); goto close
    :: seen == THEIRS && !MAY_DELETE(seen) ->            // NotOursAnyMore
        if :: COPY(w, COMPOSE) != 0 -> unsettled(w); if :: is -> goto close :: else fi :: else fi
    :: seen == NONE
    fi;
#ifndef NO_SETTLE
    atomic { unsettled(w); if :: is -> goto close :: else fi };
#endif
    COPY(w, REMOVE) = 0;                 // HostsSettled
#ifndef NO_VERIFY
    atomic { enlist(); if :: machine == FREE_VM || machine == OURS -> goto close :: else -> myHost[w] = 0 fi };
#endif
nothing:
    atomic { mayFinish(w, o); promise(NothingLeft, !vm || wasTheirs); goneNow(w, o); goto gone };
close:
    atomic { closeRecord(w, o); goto start };
gone:
    skip
}

inline execute(i) {
    printf("EV MAAS does %e\n", WORD(kind[i]));
    if
    :: kind[i] == COMPOSE ->
        if
        :: !vm ->
            promise(NothingForNobody, there[0]);
            vm = 1; wasTheirs = 0; if :: enlist(); result[i] = 1 :: machine = NONE fi        // its own part may fail
        :: else
        fi
    :: kind[i] == CLAIM ->
        if
        :: machine == FREE_VM && id == target[i] ->
#ifdef LATE_CLAIM
            promise(NothingForNobody, there[0]);
#endif
            machine = OURS; result[i] = 1
        :: else
        fi
    :: kind[i] == REMOVE ->
        result[i] = 1;
        if
        :: machine != NONE && id == target[i] ->
            promise(NothingOfOthers, machine != THEIRS);
            machine = NONE; if :: vm = 0 :: printf("EV the host keeps the VM\n") fi
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
    :: atomic { vm && machine == NONE -> enlist(); printf("EV somebody has the host refreshed\n") }
    od
}
active proctype Others() {
end:
    do
    :: atomic { machine == FREE_VM -> machine = THEIRS; wasTheirs = 1; printf("EV another user takes the VM\n") }
    :: atomic { machine == THEIRS -> machine = FREE_VM; printf("EV the other user lets it go\n") }
    od
}
active proctype Time() {
    byte x;
end:
    do SETTLE(0, COMPOSE) SETTLE(0, REMOVE) od
}
active proctype User() {
    byte x;
    if :: delete(0) :: skip fi
}
init {
    atomic {
        there[0] = 1; run Worker(0, 0);
#if WORKERS > 1
        run Worker(1, 0)
#endif
    }
}

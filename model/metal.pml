// SPDX-License-Identifier: Apache-2.0
//
// Bare metal: an object takes a machine of MAAS's pool, deploys it, and gives it back. Another user of MAAS takes and
// releases machines at any time; the object is deleted at any time.
//
//   NAMED      spec.systemID names a machine from the beginning
//   UNSUITED   what MAAS gives may not be used, and is given back
//   LAG_CACHE  Kubernetes' cache lags; LAG_LIST: the list of MAAS's machines does
//   WITHOUT_LINK    without the calls that change interfaces: fewer states
//   ADMIN, PERSON   an administrator of MAAS deploys our machine; a person releases it

#define ALLOCATE 0
#define CLAIM 1
#define DEPLOY 2
#define LINK 3
#define RELEASE 4
#define OPS 5
mtype = { allocate, claim, deploy, link, release };
#define WORD(op) ((op) == ALLOCATE -> allocate : ((op) == CLAIM -> claim : ((op) == DEPLOY -> deploy : \
    ((op) == LINK -> link : release))))

// Beside its calls an object has: spec.systemID and a machine that it does not use, each machine + 1; whether its
// release has begun, which is recorded with the call; and whether it had its machine deployed.
byte systemID[2], unused[2]; bit releasing[2], hasDeployed[2];
byte mySystemID[4], myUnused[4]; bit myReleasing[4], myDeployed[4];
#define WRITE_FIELDS(w, o) systemID[o] = mySystemID[w]; unused[o] = myUnused[w]; releasing[o] = myReleasing[w]; \
    hasDeployed[o] = myDeployed[w]
#define READ_FIELDS(w, o) mySystemID[w] = systemID[o]; myUnused[w] = unused[o]; myReleasing[w] = releasing[o]; \
    myDeployed[w] = hasDeployed[o]
#define FIELDS_DIFFER(w, o) (systemID[o] != mySystemID[w] || unused[o] != myUnused[w] || \
    releasing[o] != myReleasing[w] || hasDeployed[o] != myDeployed[w])
#define CLEAR_FIELDS(w) mySystemID[w] = 0; myUnused[w] = 0; myReleasing[w] = 0; myDeployed[w] = 0

#define TELL(o) printf("ST object %d: systemID %d, unused %d, releasing %d\n", o, systemID[o], unused[o], releasing[o])

#include "protocol.pml"

// MAAS's two machines: the status; the owner, until it is Ready again: 0, OTHERS, or object + 1; and whether it has
// our mark, which MAAS removes when a release begins.
#define MACHINES 2
#define READY 0
#define ALLOCATED 1
#define DEPLOYING 2
#define DEPLOYED 3
#define RELEASING 4
#define OTHERS 9
byte status[MACHINES], owner[MACHINES]; bit marked[MACHINES];
#define OURS(m, o) (owner[m] == (o) + 1 && marked[m])
#define SHOW(m) printf("ST machine %d: status %d, owner %d, marked %d\n", m, status[m], owner[m], marked[m])

inline find(o) {                // MAAS is asked for machines with our mark
    d_step {
        found = 0; m = 0; x = 0;
        do :: x < MACHINES -> if :: OURS(x, o) -> m = x; found++ :: else fi; x++ :: else -> break od; x = 0;
        printf("EV a manager searches: %d found\n", found)
    }
}
inline store(w, o, to) {        // what was acquired, in place of the calls that acquired it
    atomic {
        beginStore(w, o);
        if
        :: to == 0 && mySystemID[w] != 0 && mySystemID[w] != m + 1 -> goto start     // it is immutable
        :: else
        fi;
        keepSettled(w, o); COPY(w, ALLOCATE) = 0; COPY(w, CLAIM) = 0;
        if :: to -> myUnused[w] = m + 1 :: else -> mySystemID[w] = m + 1 fi;
        write(w, o); printf("EV manager %d stores machine %d (unused: %d)\n", MANAGER(w), m, to)
    }
}
inline finish(w, o) {
    atomic {
        mayFinish(w, o); x = 0;
        do :: x < MACHINES -> promise(NothingLeft, owner[x] != o + 1); x++ :: else -> break od; x = 0;
        goneNow(w, o); goto gone
    }
}
inline noteDeployment(w) {      // the effect of a deploy shows whose answer was lost
    if
    :: COPY(w, DEPLOY) != 0 && (seen == DEPLOYING || seen == DEPLOYED) -> COPY(w, DEPLOY) = 0; myDeployed[w] = 1
    :: else
    fi
}
#ifdef LAG_LIST
#define LISTED(m) (m == 0 -> listed0 : listed1)
#else
#define LISTED(m) status[m]
#endif

proctype Worker(byte w; byte o) {
    LOCALS; byte m, found, seen;
#ifdef LAG_LIST
    byte listed0, listed1; byte old[OPS];
#endif
start:
#ifdef LAG_LIST                 // the list is older than the record that is opened
    atomic {
        if :: !there[o] -> goto gone :: else fi;
        listed0 = status[0]; listed1 = status[1]; x = 0;
        do :: x < OPS -> old[x] = PENDING(o, x); x++ :: else -> break od; x = 0
    }
#endif
    atomic {
        permit[w] = 0; m = 0; found = 0; seen = 0; answer = 0; before = 0; is = 0; call = 0;
        if
        :: !there[o] -> goto gone
        :: there[o] -> open(w, o)
#ifdef LAG_CACHE
        :: there[o] && !sameObject[w]            // the cache lags: the copy is an earlier one
#endif
        fi;
        if :: myUnused[w] != 0 -> m = myUnused[w] - 1; seen = status[m]; goto away :: else fi;
        if
        :: mySystemID[w] != 0 ->
            m = mySystemID[w] - 1; seen = LISTED(m);
#if defined(LAG_LIST) && !defined(NO_AS_OF)      // Record.AsOf: what was not settled when MAAS was asked is not settled
            do
            :: x < OPS -> if :: COPY(w, x) == SETTLED && old[x] != SETTLED -> COPY(w, x) = MAY_COME :: else fi; x++
            :: else -> break
            od; x = 0;
#endif
            noteDeployment(w);
            if :: knowsDeleted[w] -> goto away :: else -> goto taken fi
        :: else
        fi;
        if :: knowsDeleted[w] && COPY(w, ALLOCATE) == 0 && COPY(w, CLAIM) == 0 -> goto nothing :: else fi
    }

    // Adoption, allocation; or DeletionLookup.
#ifndef NO_FIND
    find(o);
    if :: found > 0 -> goto got :: else fi;
#endif
    atomic {
        unsettled(w);
#ifdef NO_SETTLE_REPEAT
        if :: !knowsDeleted[w] -> is = 0; COPY(w, ALLOCATE) = 0 :: else fi;
#endif
#ifdef NO_SETTLE_FINAL
        if :: knowsDeleted[w] -> is = 0 :: else fi;
#endif
        if :: is -> goto close :: else fi;
        if :: knowsDeleted[w] -> goto nothing :: else fi
    };
    grant(w, o, ALLOCATE); send(w, o, ALLOCATE, ALLOCATE, 0); await(w);
    if
    :: answer == 0 -> ended(w, o, ALLOCATE, before); goto close
    :: else -> m = answer - 1
    fi;
got:
    if
    :: found = 0
#ifdef UNSUITED
    :: found = 1                         // it can't become this one
#endif
    :: atomic { FAULT; goto start }
    fi;
    store(w, o, found); goto close;

taken:                                   // Claim, Network, Deployment
    if
    :: seen == READY ->
        grant(w, o, CLAIM); send(w, o, CLAIM, CLAIM, m); await(w);
        if
        :: answer == 0 -> ended(w, o, CLAIM, before)
        :: else -> atomic { COPY(w, CLAIM) = 0; COPY(w, ALLOCATE) = 0 }
        fi;
        goto close
    :: seen == ALLOCATED ->
#ifndef NO_PROVE
        if :: OURS(m, o) :: else -> goto close fi;
#endif
        atomic { COPY(w, CLAIM) = 0; COPY(w, ALLOCATE) = 0 };
        if
#ifndef WITHOUT_LINK
        :: grant(w, o, LINK); send(w, o, LINK, LINK, m); await(w); ended(w, o, LINK, before)
#endif
        :: grant(w, o, DEPLOY); send(w, o, DEPLOY, DEPLOY, m); await(w);
            if :: answer != 0 -> myDeployed[w] = 1 :: else fi;
            ended(w, o, DEPLOY, before)
        fi;
        goto close
    :: else -> goto close
    fi;

away:                                    // releaseBareMetal
    if
    :: atomic { seen == READY ->         // inPool
        unsettled(w);
#ifdef NO_SETTLE_FINAL
        is = 0;
#endif
        if :: is -> goto close :: else -> goto nothing fi }
    :: seen == RELEASING ->
#ifdef NO_WAIT_READY
        goto nothing
#else
        goto close
#endif
    :: else
    fi;
    atomic {                             // IsOursToRelease
        if :: status[m] != seen -> goto close :: else fi;
        is = (owner[m] == o + 1 && (marked[m] || myReleasing[w]));
#ifdef NO_PROVE_RELEASE
        is = 1;
#endif
        if :: is -> goto giveBack :: else fi
    }
#ifndef NO_WAIT_FOREIGN                  // NotOursAnyMore
    if
    :: COPY(w, ALLOCATE) != 0 || COPY(w, CLAIM) != 0 -> unsettled(w); if :: is -> goto close :: else fi
    :: else
    fi;
#endif
    if :: status[m] == seen -> goto nothing :: else -> goto close fi;
giveBack:
    atomic {
        COPY(w, CLAIM) = 0; COPY(w, ALLOCATE) = 0;
#ifndef NO_LET_GO                        // Record.LetGo waits for all other calls
        unsettled(w); if :: is -> goto close :: else fi;
#endif
        myReleasing[w] = 1               // it is stored with the call
    };
    grant(w, o, RELEASE); send(w, o, RELEASE, RELEASE, m); await(w); ended(w, o, RELEASE, before); goto close;

nothing:                                 // MAAS has nothing of the object, or of what it does not use, any more
    if
    :: myUnused[w] != 0 ->
        atomic { beginStore(w, o); keepSettled(w, o); myUnused[w] = 0; myReleasing[w] = 0; write(w, o) }
    :: else -> finish(w, o)
    fi;
close:
    atomic { closeRecord(w, o); goto start };
gone:
    skip
}

#define TAKE(o, m) x = 0; \
    do :: x < MACHINES -> promise(NeverTwo, x == m || owner[x] != o + 1); x++ :: else -> break od; x = 0; \
    promise(NothingForNobody, there[o]); status[m] = ALLOCATED; owner[m] = o + 1; marked[m] = 1; \
    result[i] = m + 1; SHOW(m)
#define HITS(m, o) promise(NothingOfOthers, owner[m] == o + 1); result[i] = 1

inline execute(i) {
    o = forObject[i]; m = target[i]; printf("EV MAAS does %e for object %d (machine %d)\n", WORD(kind[i]), o, m);
    if
    :: kind[i] == ALLOCATE ->
        if
        :: status[0] == READY -> m = 0; TAKE(o, m)
        :: status[1] == READY -> m = 1; TAKE(o, m)
        :: status[0] != READY && status[1] != READY
        fi
    :: kind[i] == CLAIM -> if :: status[m] == READY -> TAKE(o, m) :: else fi
    :: kind[i] == DEPLOY ->              // MAAS lets an administrator deploy what is Ready
        if :: status[m] == ALLOCATED || status[m] == READY -> HITS(m, o); status[m] = DEPLOYING; SHOW(m) :: else fi
    :: kind[i] == LINK -> if :: status[m] == ALLOCATED || status[m] == READY -> HITS(m, o) :: else fi
    :: kind[i] == RELEASE ->
        if
        :: status[m] == ALLOCATED || status[m] == DEPLOYING || status[m] == DEPLOYED ->
            HITS(m, o); status[m] = RELEASING; marked[m] = 0; SHOW(m)
        :: else
        fi
    fi;
    if :: caller[i] == NOBODY -> free(i) :: else -> state[i] = ANSWERED fi;
    o = 0; m = 0
}
active proctype MAAS() {
    byte m, o, x;
end:
    do
    :: atomic { state[0] == FLIES -> execute(0) }
    :: atomic { state[1] == FLIES -> execute(1) }
#if CALLS > 2
    :: atomic { state[2] == FLIES -> execute(2) }
#endif
    od
}
#define PROGRESS(m) \
    :: atomic { status[m] == DEPLOYING -> status[m] = DEPLOYED; SHOW(m) } \
    :: atomic { status[m] == RELEASING -> status[m] = READY; owner[m] = 0; marked[m] = 0; \
        printf("EV a machine is Ready\n"); SHOW(m) }
active proctype Machine0() {
end: do PROGRESS(0) od
}
active proctype Machine1() {
end: do PROGRESS(1) od
}
#ifdef LIVE
byte others = 2;
#define SOMETIMES (others > 0) -> others--
#else
#define SOMETIMES true
#endif
#define TAKEN_BY_OTHERS(m) \
    :: atomic { status[m] == READY && SOMETIMES; status[m] = ALLOCATED; owner[m] = OTHERS; \
        printf("EV another user takes a machine\n"); SHOW(m) } \
    :: atomic { owner[m] == OTHERS -> status[m] = READY; owner[m] = 0; printf("EV the other user releases it\n"); \
        SHOW(m) }
#define MEDDLED_WITH(m) \
    :: atomic { owner[m] != OTHERS && owner[m] != 0 && status[m] != RELEASING -> status[m] = RELEASING; marked[m] = 0; \
        printf("EV a person releases our machine\n"); SHOW(m) }
#define DEPLOYED_BY_OTHERS(m) \
    :: atomic { owner[m] != OTHERS && owner[m] != 0 && status[m] == ALLOCATED -> status[m] = DEPLOYING; \
        printf("EV an administrator deploys our machine\n"); SHOW(m) }
active proctype Others() {
end:
    do
    TAKEN_BY_OTHERS(0) TAKEN_BY_OTHERS(1)
#ifdef PERSON
    MEDDLED_WITH(0) MEDDLED_WITH(1)
#endif
#ifdef ADMIN
    DEPLOYED_BY_OTHERS(0) DEPLOYED_BY_OTHERS(1)
#endif
    od
}
#define SETTLES(o) SETTLE(o, ALLOCATE) SETTLE(o, CLAIM) SETTLE(o, DEPLOY) SETTLE(o, LINK) SETTLE(o, RELEASE)
active proctype Time() {
    byte x;
end:
    do
    SETTLES(0)
#if OBJECTS > 1
    SETTLES(1)
#endif
    od
}
active proctype User() {
    byte x;
    if
    :: delete(0)
#ifndef LIVE
    :: skip
#endif
    fi;
#if OBJECTS > 1
    if :: delete(1) :: skip fi
#endif
}
init {
    atomic {
        there[0] = 1; run Worker(0, OBJECT(0));
#ifdef NAMED
        systemID[0] = 1; TELL(0);
#endif
#if OBJECTS > 1
        there[1] = 1;
#ifdef NAMED
        systemID[1] = 1; TELL(1);
#endif
#endif
#if WORKERS > 1
        run Worker(1, OBJECT(1));
#endif
#if WORKERS > 2
        run Worker(2, OBJECT(2)); run Worker(3, OBJECT(3))
#endif
    }
}
#ifdef LIVE                     // a deleted object goes, whatever is lost
ltl Ends { <> [] (!there[0]) }
#endif

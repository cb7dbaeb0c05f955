// SPDX-License-Identifier: Apache-2.0
//
// A VM from an image on one of two direct hosts, which come and go: the device first, a stopped VM, its host recorded,
// the start last (docs/adr/0033-image-boot.md). LXD knows a VM by its name, and so a late call hits who has that.
//
//   SUCCESSOR    when the object is gone, another one of its name is made
//   HOSTS_STAY   both hosts respond all the time: fewer states
//   ONLY_TWO     promises only that never two VMs run

#ifdef SUCCESSOR
#define OBJECTS 2
#else
#define OBJECTS 1
#endif
#define COMPOSE 0
#define REMOVE 1
#define START 2
#define OPS 3
mtype = { compose, remove, start_vm };
#define WORD(op) ((op) == COMPOSE -> compose : ((op) == REMOVE -> remove : start_vm))
#define SENT(w) skip            // several calls follow one record, within its 15 seconds
#ifdef NO_SETTLE
#define NO_SETTLE_FINAL
#endif

// Beside its calls an object has: the hosts that may have its VM, the one where it runs + 1, which is stored with
// spec.systemID, and whether it was provisioned.
bit host0[2], host1[2], provisioned[2]; byte runs[2];
bit myHost0[4], myHost1[4], myProvisioned[4]; byte myRuns[4];
#define WRITE_FIELDS(w, o) host0[o] = myHost0[w]; host1[o] = myHost1[w]; provisioned[o] = myProvisioned[w]; \
    runs[o] = myRuns[w]
#define READ_FIELDS(w, o) myHost0[w] = host0[o]; myHost1[w] = host1[o]; myProvisioned[w] = provisioned[o]; \
    myRuns[w] = runs[o]
#define FIELDS_DIFFER(w, o) (host0[o] != myHost0[w] || host1[o] != myHost1[w] || \
    provisioned[o] != myProvisioned[w] || runs[o] != myRuns[w])
#define CLEAR_FIELDS(w) myHost0[w] = 0; myHost1[w] = 0; myProvisioned[w] = 0; myRuns[w] = 0

#include "protocol.pml"
#ifdef ONLY_TWO
#define also(sentence, holds) skip
#else
#define also(sentence, holds) promise(sentence, holds)
#endif

// LXD: the VM of the name on each host, the object + 1 that it was made for, LXD's id, and whether it is ephemeral.
// MAAS: the device of the name, and the object + 1 that it was made for. The LXDHost remembers what was left there.
#define STOPPED 1
#define RUNNING 2
byte vm[2], madeFor[2], vmID[2], nextID; bit ephemeral[2], responds[2] = 1, left[2];
byte device;

// What a server is asked for.
#define MAKE_DEVICE 1
#define CLONE 2
#define START_VM 3
#define MARK 4                  // PATCH: ephemeral, if the VM is the one with this id
#define STOP 5
#define DELETE 6
#define DROP_DEVICE 7

#define MAY_BE_ON(w, h) ((h) == 0 -> myHost0[w] : myHost1[w])
inline mayBeOn(w, h, is_) { if :: h == 0 -> myHost0[w] = is_ :: else -> myHost1[w] = is_ fi }
inline sendAtAnyTime(w, o, op, what, to) {
    atomic { put(w, o, op, what, to); printf("EV manager %d sends %d\n", MANAGER(w), what) }
}
#define SAW(h, it) atomic { responds[h] && (it)

// Deletes the VM that the host shows. One that runs is made ephemeral, if it is the one that was seen, and stopped.
inline removeFrom(w, o, h) {
    mayBeOn(w, h, 1);
    grant(w, o, REMOVE);
    atomic { seen = vm[h]; seenID = vmID[h]; if :: !responds[h] -> goto start :: else fi }
    if
    :: seen == RUNNING ->
        send(w, o, REMOVE, MARK, h + 2 * seenID); await(w);
        if :: answer -> send(w, o, REMOVE, STOP, h); await(w) :: else -> goto start fi
    :: seen == STOPPED -> send(w, o, REMOVE, DELETE, h); await(w)
    :: else
    fi;
    ended(w, o, REMOVE, 0)
}

proctype Worker(byte w; byte o) {
    LOCALS; byte h, seen, seenID; bit remains;
    there[o];
start:
    atomic {
        permit[w] = 0; h = 0; seen = 0; seenID = 0; remains = 0; answer = 0; before = 0; is = 0; call = 0; x = 0;
        if :: !there[o] -> goto gone :: there[o] -> open(w, o) fi;
        if :: knowsDeleted[w] -> goto deletion :: myRuns[w] != 0 && !knowsDeleted[w] -> goto made :: else fi
    }
    // Adoption, Recovery: nothing is made while a call may make, start, stop or delete a VM of the name.
#ifndef NO_SETTLE
    atomic { unsettled(w); if :: is -> goto close :: else fi };
#endif
    do
    :: h < 2 && MAY_BE_ON(w, h) ->
        if
        :: SAW(h, vm[h] == 0) -> mayBeOn(w, h, 0) }
        :: SAW(h, vm[h] != 0) -> printf("EV manager %d finds a VM on host %d\n", MANAGER(w), h) };
            removeFrom(w, o, h); goto close
        :: !responds[h]
        fi; h++
    :: h < 2 && !MAY_BE_ON(w, h) -> h++
    :: else -> break
    od;
    // Composition
#ifndef NO_LEFT
    if :: left[0] || left[1] -> goto close :: else fi;
#endif
    if :: atomic { responds[0] -> h = 0 } :: atomic { responds[1] -> h = 1 } fi;
    mayBeOn(w, h, 1);
    grant(w, o, COMPOSE);
#ifdef NO_DEVICE_FIRST
    send(w, o, COMPOSE, CLONE, h); await(w); send(w, o, COMPOSE, MAKE_DEVICE, 0); await(w);
#else
    send(w, o, COMPOSE, MAKE_DEVICE, 0); await(w); send(w, o, COMPOSE, CLONE, h); await(w);
#endif
#ifdef NO_START_LAST
    sendAtAnyTime(w, o, START, START_VM, h); await(w);
#endif
    atomic {                             // its id, and where it runs
        beginStore(w, o); keepSettled(w, o); COPY(w, COMPOSE) = 0; myRuns[w] = h + 1; write(w, o); permit[w] = 0;
        printf("EV manager %d stores that it runs on host %d\n", MANAGER(w), h)
    }
made:                                    // Start
    atomic {
        h = myRuns[w] - 1;
        if
        :: responds[h] && vm[h] == RUNNING ->
            myProvisioned[w] = 1;
            unsettled(w); if :: !is -> COPY(w, START) = 0 :: else fi;
            closeRecord(w, o); goto spares
        :: (!responds[h] || vm[h] != RUNNING) && myProvisioned[w] -> goto close
        :: else
        fi
    }
#ifdef NO_START_RECORD
    if :: there[o] && !deleted[o] -> skip :: else -> goto start fi;
    sendAtAnyTime(w, o, START, START_VM, h); await(w);
#else
    grant(w, o, START); send(w, o, START, START_VM, h); await(w); ended(w, o, START, 0);
#endif
    goto close;
spares:                                  // WithoutSpares: the other host
    h = 2 - myRuns[w];
    if
    :: !MAY_BE_ON(w, h)
    :: MAY_BE_ON(w, h) ->
        if
        :: SAW(h, vm[h] == 0) -> mayBeOn(w, h, 0) }
        :: SAW(h, vm[h] != 0) -> printf("EV manager %d finds a second VM on host %d\n", MANAGER(w), h) };
            removeFrom(w, o, h)
        :: !responds[h]
        fi
    fi;
    goto close;

deletion:
#ifdef NO_AWAIT_HOSTS
    atomic { COPY(w, REMOVE) = 0; COPY(w, START) = 0 };
#endif
#ifndef NO_SETTLE
    atomic { unsettled(w); if :: is -> goto close :: else fi };
#endif
    atomic { COPY(w, REMOVE) = 0; COPY(w, START) = 0 };  // HostsSettled
#ifdef NO_DEVICE_LAST
    if :: device -> sendAtAnyTime(w, o, REMOVE, DROP_DEVICE, 0); await(w) :: else fi;
#endif
    do                                           // Verification
    :: h < 2 && MAY_BE_ON(w, h) ->
        if
        :: SAW(h, vm[h] == 0) -> mayBeOn(w, h, 0) }
        :: responds[h] && vm[h] != 0 -> removeFrom(w, o, h); goto close
        :: !responds[h] -> goto close
        :: atomic { !responds[h] ->              // for 5 minutes
            printf("EV manager %d leaves what host %d has\n", MANAGER(w), h);
#ifndef NO_LEFT
            left[h] = 1;
#endif
            remains = 1; mayBeOn(w, h, 0) }
        fi; h++
    :: h < 2 && !MAY_BE_ON(w, h) -> h++
    :: else -> break
    od;
    if                                           // Deregistration
#ifdef NO_READ_LEFT                              // what was left is known from memory alone, not from the LXDHosts
    :: device && !remains ->
#else
    :: device && !left[0] && !left[1] && !remains ->
#endif
        sendAtAnyTime(w, o, REMOVE, DROP_DEVICE, 0); await(w); if :: answer :: else -> goto start fi
    :: else
    fi;
    atomic {
        mayFinish(w, o);
        also(NothingLeft, (vm[0] == 0 || left[0]) && (vm[1] == 0 || left[1]) && (!device || left[0] || left[1]));
        goneNow(w, o); goto gone
    };
close:
    atomic { closeRecord(w, o); goto start };
gone:
    skip
}

#define OWN(i, h) (madeFor[h] == forObject[i] + 1)
#define NO_VM(h) vm[h] = 0; ephemeral[h] = 0; madeFor[h] = 0; vmID[h] = 0
inline execute(i) {
    h = target[i] % 2; printf("EV a server does %d on host %d for object %d\n", kind[i], h, forObject[i]);
    if
    :: kind[i] == MAKE_DEVICE ->
        if :: !device -> also(NothingForNobody, there[forObject[i]]) :: else fi;
        device = forObject[i] + 1; result[i] = 1
    :: kind[i] == CLONE ->
        result[i] = 1;
        if
        :: vm[h] == 0 ->
            also(NothingForNobody, there[forObject[i]]); also(DeviceOutlivesVM, device != 0);
            vm[h] = STOPPED; madeFor[h] = forObject[i] + 1; vmID[h] = nextID; nextID = (nextID + 1) % 4;
            ephemeral[h] = 0
        :: else
        fi
    :: kind[i] == START_VM ->
        if
        :: vm[h] == STOPPED ->
            promise(NeverTwo, vm[1-h] != RUNNING); also(NothingOfOthers, OWN(i, h));
            vm[h] = RUNNING; result[i] = 1
        :: else -> result[i] = (vm[h] == RUNNING)
        fi
    :: kind[i] == MARK ->
        if
#ifdef NO_ETAG
        :: vm[h] != 0 ->
#else
        :: vm[h] != 0 && vmID[h] == target[i] / 2 ->
#endif
            ephemeral[h] = 1; result[i] = 1
        :: else
        fi
    :: kind[i] == STOP ->
        if
        :: vm[h] == RUNNING ->
            also(NothingOfOthers, OWN(i, h));
            also(RunningVMStays, deleted[forObject[i]] || runs[forObject[i]] != h + 1);
            if :: ephemeral[h] -> NO_VM(h) :: else -> vm[h] = STOPPED fi;
            result[i] = 1
        :: else
        fi
    :: kind[i] == DELETE ->
        if :: vm[h] == STOPPED -> also(NothingOfOthers, OWN(i, h)); NO_VM(h); result[i] = 1 :: else fi
    :: kind[i] == DROP_DEVICE ->
        if
        :: device == forObject[i] + 1 -> also(DeviceOutlivesVM, vm[0] == 0 && vm[1] == 0); device = 0; result[i] = 1
        :: else -> result[i] = (device == 0)
        fi
    fi;
    if :: caller[i] == NOBODY -> free(i) :: else -> state[i] = ANSWERED fi;
    h = 0
}
#define IN_MAAS(i) (kind[i] == MAKE_DEVICE || kind[i] == DROP_DEVICE)
#define ANSWERS(i) :: atomic { state[i] == FLIES && (IN_MAAS(i) || responds[target[i] % 2] || caller[i] == NOBODY) -> \
    execute(i) }
#define COMES_AND_GOES(h) :: atomic { responds[h] -> responds[h] = 0; printf("EV a host does not respond\n") } \
    :: atomic { !responds[h] -> responds[h] = 1; printf("EV a host responds\n") }
// Package leftvms, in one step, when the host is back.
#define LEFT_GOES(h) :: atomic { left[h] && responds[h] -> NO_VM(h); left[h] = 0; \
    if :: !left[1-h] -> device = 0 :: else fi; printf("EV what was left on a host is deleted\n") }
active proctype Servers() {
    byte h;
end:
    do
    ANSWERS(0) ANSWERS(1)
#if CALLS > 2
    ANSWERS(2)
#endif
#ifndef HOSTS_STAY
    COMES_AND_GOES(0) COMES_AND_GOES(1)
#endif
    LEFT_GOES(0) LEFT_GOES(1)
    od
}
#define SETTLES(o) SETTLE(o, COMPOSE) SETTLE(o, REMOVE) SETTLE(o, START)
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
    there[0];
    if :: delete(0) :: skip fi;
#ifdef SUCCESSOR
end:
    atomic { !there[0] -> there[1] = 1; printf("EV another object of the name is made\n") };
    if :: delete(1) :: skip fi
#endif
}
init {
    atomic {
        there[0] = 1; run Worker(0, OBJECT(0));
#if WORKERS > 1
        run Worker(1, OBJECT(1));
#endif
#if WORKERS > 2
        run Worker(2, OBJECT(2)); run Worker(3, OBJECT(3))
#endif
    }
}

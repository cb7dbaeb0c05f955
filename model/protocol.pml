// SPDX-License-Identifier: Apache-2.0
//
// What all models have in common: the record before each call, the permit to send it, the settle time, calls that are
// lost, late or answered late, a manager that dies, and two at a hand-over. README.md says how to read it.
//
// A model defines, before it includes this file: OPS, the number of operations of the record; WORD(op), an operation's
// name; and the other fields of the record and of the object: WRITE_FIELDS(w, o) writes a worker's copy to Kubernetes,
// READ_FIELDS(w, o) reads it from there, and FIELDS_DIFFER(w, o) compares them. -DNO_... takes a guard away. TELL(o),
// if there is one, prints the other fields, as write does what is pending, in a line that begins with ST; those that begin
// with EV are events. test/replay reads both.

#include "promises.pml"

#ifndef OBJECTS
#define OBJECTS 1
#endif
#ifndef MANAGERS                // two: the earlier leader was suspended, or was rolled back; it has an old view
#define MANAGERS 1
#endif
#ifndef CALLS                   // calls that may be under way at the same time
#define CALLS 2
#endif
#ifndef SENT                    // a permit is for one call, unless the model says that it is for several
#define SENT(w) permit[w] = 0
#endif
#ifndef COVERS                  // which calls an entry of the record is about: those that were recorded as it
#define COVERS(op, as) ((as) == (op))
#endif
#ifndef TELL
#define TELL(o) skip
#endif
#define WORKERS (OBJECTS*MANAGERS)
#define OBJECT(w) ((w) % OBJECTS)
#define MANAGER(w) ((w) / OBJECTS)

// Kubernetes: the objects, and the calls that are recorded on them.
#define MAY_COME 1              // it is recorded, and may still take effect
#define SETTLED 2               // it is recorded, and its settle time is over
bit there[OBJECTS], deleted[OBJECTS];
byte pending[OBJECTS*OPS];
#define PENDING(o, op) pending[(o)*OPS + (op)]

// Each worker, one for each object in each manager: its copy, as read when the record was opened and as changed since.
bit knowsDeleted[WORKERS];
byte copied[WORKERS*OPS];
bit sameObject[WORKERS];        // the object has the resource version that the worker knows
bit sameRecord[WORKERS];        // the record is as the worker knows it
byte permit[WORKERS];           // what is recorded and not sent yet: operation + 1; 0 when its 15 seconds are over
#define COPY(w, op) copied[(w)*OPS + (op)]

// Calls under way.
#define FREE 0
#define FLIES 1
#define ANSWERED 2
#define NOBODY 15               // its caller is dead, or does not wait any more
byte state[CALLS], recordedAs[CALLS], kind[CALLS], forObject[CALLS], target[CALLS], caller[CALLS], result[CALLS];

#ifdef LIVE                     // liveness: a bounded number of faults
byte faults = FAULTS;
#define FAULT (faults > 0) -> faults--
#else
#define FAULT true
#endif

// What each worker needs: x is a counter, call the call that it waits for, answer what that returned.
#define LOCALS byte x, call, answer, before; bit is

inline write(w, o) {            // the copy becomes the record; no other worker's copy is as new
    d_step {
        WRITE_FIELDS(w, o); x = 0;
        do
        :: x < OPS ->
            PENDING(o, x) = COPY(w, x); printf("ST object %d: %e is %d\n", o, WORD(x), PENDING(o, x)); x++
        :: else -> break
        od; x = 0;
        TELL(o);
#if WORKERS > 1
        do
        :: x < WORKERS -> if :: x != w && OBJECT(x) == o -> sameObject[x] = 0; sameRecord[x] = 0 :: else fi; x++
        :: else -> break
        od; x = 0
#endif
    }
}
inline read(w, o) {
    d_step {
        READ_FIELDS(w, o); x = 0;
        do :: x < OPS -> COPY(w, x) = PENDING(o, x); x++ :: else -> break od; x = 0
    }
}
// What is settled by now is not recorded as if it were not: the time goes on for all. The copy itself stays as it was
// when MAAS was asked, see Record.AsOf.
inline keepSettled(w, o) {
    d_step {
        x = 0;
        do
        :: x < OPS -> if :: PENDING(o, x) == SETTLED && COPY(w, x) == MAY_COME -> COPY(w, x) = SETTLED :: else fi; x++
        :: else -> break
        od; x = 0
    }
}
inline unsettled(w) {           // Record.Unsettled
    d_step {
        is = 0; x = 0;
        do :: x < OPS -> if :: COPY(w, x) == MAY_COME -> is = 1 :: else fi; x++ :: else -> break od; x = 0
    }
}
inline open(w, o) {             // a reconcile begins: the object is read, its record is opened
    read(w, o); knowsDeleted[w] = deleted[o]; sameObject[w] = 1; sameRecord[w] = 1
}

// Record.Call, Record.LetGo: the call is recorded, on the unchanged object alone.
inline grant(w, o, op) {
    atomic {
        before = COPY(w, op);
        if
#ifndef NO_SAME_OP
        :: before == MAY_COME -> goto close              // the same may still take effect
        :: before != MAY_COME &&
#else
        ::
#endif
#ifdef NO_OPTIMISTIC_LOCK
            there[o] ->
#else
            there[o] && sameObject[w] ->
#endif
#ifndef NO_RECORD
            keepSettled(w, o); COPY(w, op) = MAY_COME; write(w, o);
            printf("EV manager %d records %e of object %d\n", MANAGER(w), WORD(op), o);
#endif
            permit[w] = op + 1
        :: else -> printf("EV manager %d: conflict\n", MANAGER(w)); goto start
        fi
    }
}
// put sends a call without a permit: one that may be late, or repeated.
inline put(w, o, op, what, to) {
    call = 0;
    do :: call < CALLS && state[call] != FREE -> call++ :: else -> break od;
    if :: call == CALLS -> call = 0; permit[w] = 0; goto start :: else fi;   // not sent: as if the manager died
    state[call] = FLIES; recordedAs[call] = op; kind[call] = what; forObject[call] = o; target[call] = to;
    caller[call] = w; result[call] = 0
}
inline send(w, o, op, what, to) {
    atomic {
        if
        :: permit[w] == op + 1
        :: else -> printf("EV manager %d: too late to send\n", MANAGER(w)); goto start      // the record stays
        fi;
        put(w, o, op, what, to); SENT(w);
        printf("EV manager %d sends %e (%d) for object %d\n", MANAGER(w), WORD(op), what, o)
    }
}
inline free(i) {
    state[i] = FREE; recordedAs[i] = 0; kind[i] = 0; forObject[i] = 0; target[i] = 0; caller[i] = 0; result[i] = 0
}
// The answer; or it is lost, or the manager dies: the call is the server's alone then.
inline await(w) {
    if
    :: atomic {
        state[call] == ANSWERED && caller[call] == w -> answer = result[call];
        printf("EV manager %d gets the answer %d to %e of object %d\n", MANAGER(w), answer, WORD(recordedAs[call]),
            forObject[call]);
        free(call); call = 0 }
    :: atomic {
        state[call] == FLIES && caller[call] == w && FAULT; caller[call] = NOBODY; call = 0;
        printf("EV manager %d gets no answer, or dies\n", MANAGER(w)); goto start }
    :: atomic {
        state[call] == ANSWERED && caller[call] == w && FAULT; free(call); call = 0;
        printf("EV manager %d gets no answer, or dies\n", MANAGER(w)); goto start }
    :: atomic { !(state[call] != FREE && caller[call] == w) -> call = 0; goto start }
    fi
}
// The end of Record.call: the outcome is known. If others have changed the record, the call stays in it.
inline ended(w, o, op, left) {
    atomic {
        keepSettled(w, o); COPY(w, op) = left; permit[w] = 0; before = 0;
        if :: there[o] && sameRecord[w] -> write(w, o) :: else -> COPY(w, op) = MAY_COME fi
    }
}
// Record.Store begins: a record that others have changed is read anew first. change and write(w, o) follow.
inline beginStore(w, o) {
    if
    :: there[o] && sameRecord[w]
#ifdef NO_STRICT_STORE                  // on top of what others have recorded
    :: there[o] && !sameRecord[w] -> read(w, o); sameRecord[w] = 1
    :: !there[o] -> goto start
#else
    :: else -> printf("EV manager %d: conflict\n", MANAGER(w)); goto start
#endif
    fi
}
// Record.Close: what changed in memory, unless others have changed the record.
inline closeRecord(w, o) {
    keepSettled(w, o);
    d_step {
        is = FIELDS_DIFFER(w, o); x = 0;
        do :: x < OPS -> is = is || PENDING(o, x) != COPY(w, x); x++ :: else -> break od; x = 0
    }
    if :: is && there[o] && sameRecord[w] -> write(w, o) :: else fi
}
// Record.Finish: the finalizer goes, if nothing may take effect any more and the object is as it was read.
// The model's own promise follows in the same step, and then goneNow.
inline mayFinish(w, o) {
#ifndef NO_SETTLE_FINAL
    unsettled(w);
    if :: is -> goto close :: else fi;
#endif
    if
    :: there[o] && sameObject[w]
#ifdef NO_FINAL_LOCK
    :: there[o] && !sameObject[w]
#endif
    :: else -> goto start
    fi;
    printf("EV manager %d removes the finalizer of object %d\n", MANAGER(w), o)
}
inline goneNow(w, o) {
    there[o] = 0; x = 0;
    do :: x < OPS -> COPY(w, x) = 0; x++ :: else -> break od; x = 0;
    CLEAR_FIELDS(w); write(w, o)
}

// The settle time of a recorded call is over: whatever server was asked does not do it any more, and a permit that was
// not used, which lasts for 15 seconds, has ended long before.
inline settle(o, op) {
    d_step {
        PENDING(o, op) = SETTLED; printf("EV the settle time of %e of object %d is over\n", WORD(op), o); x = 0;
        do
        :: x < WORKERS ->
            if
            :: OBJECT(x) == o ->
#ifdef NO_AS_OF                         // whether it is over is asked as of now, not as of when MAAS was asked
                if :: COPY(x, op) == MAY_COME -> COPY(x, op) = SETTLED :: else fi;
#endif
#ifndef NO_SEND_WITHIN
                if :: permit[x] == op + 1 -> permit[x] = 0 :: else fi;
#endif
                skip
            :: else
            fi; x++
        :: else -> break
        od; x = 0;
        do
        :: x < CALLS ->
            if :: state[x] == FLIES && forObject[x] == o && COVERS(op, recordedAs[x]) -> free(x) :: else fi; x++
        :: else -> break
        od; x = 0
    }
}
#ifdef LIVE                     // MAAS is not always slower than the settle time
#define HELD(o, op, i) (state[i] != FREE && forObject[i] == o && recordedAs[i] == op && caller[i] != NOBODY)
#define SETTLE(o, op) :: atomic { there[o] && PENDING(o, op) == MAY_COME && \
    !HELD(o, op, 0) && !HELD(o, op, 1) && permit[0] != op + 1 -> settle(o, op) }
#else
#define SETTLE(o, op) :: atomic { there[o] && PENDING(o, op) == MAY_COME -> settle(o, op) }
#endif
inline delete(o) {
    d_step {
        deleted[o] = 1; x = 0; printf("EV object %d is deleted\n", o);
        do :: x < WORKERS -> if :: OBJECT(x) == o -> sameObject[x] = 0 :: else fi; x++ :: else -> break od; x = 0
    }
}

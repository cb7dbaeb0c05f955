// SPDX-License-Identifier: Apache-2.0
//
// The virtual IP of a cluster: reserved in MAAS under the cluster's name, and freed by its number. Two clusters want the
// one address of a subnet; another user reserves it, too, whenever it is free.

#define OBJECTS 2
#define RESERVE 0
#define UNRESERVE 1
#define OPS 2
mtype = { reserve, unreserve };
#define WORD(op) ((op) == RESERVE -> reserve : unreserve)

bit host[OBJECTS], myHost[4];   // spec.controlPlaneEndpoint.host
#define WRITE_FIELDS(w, o) host[o] = myHost[w]
#define READ_FIELDS(w, o) myHost[w] = host[o]
#define FIELDS_DIFFER(w, o) (host[o] != myHost[w])
#define CLEAR_FIELDS(w) myHost[w] = 0

#include "protocol.pml"

#define OTHERS 9
byte reservedFor;               // 0, OTHERS, or cluster + 1

proctype Worker(byte w; byte o) {
    LOCALS; bit ours;
start:
    atomic {
        permit[w] = 0; ours = 0; answer = 0; before = 0; is = 0; call = 0; x = 0;
        if :: !there[o] -> goto gone :: there[o] -> open(w, o) fi
    }
    skip;                                // a reconcile takes time, and others act meanwhile
    atomic {
        if :: knowsDeleted[w] -> goto deletion :: else fi
    }
    if :: myHost[w] -> goto end_runs :: else fi;
    atomic {                             // what is reserved under our name is ours
        ours = (reservedFor == o + 1);
        if
        :: ours ->
            beginStore(w, o); keepSettled(w, o); COPY(w, RESERVE) = 0; myHost[w] = 1; write(w, o);
            printf("EV cluster %d has the address\n", o); goto close
        :: else
        fi;
#ifndef NO_SETTLE_REPEAT
        unsettled(w); if :: is -> goto close :: else fi
#endif
    }
    grant(w, o, RESERVE); send(w, o, RESERVE, RESERVE, 0); await(w);
    if :: answer == 0 -> ended(w, o, RESERVE, before) :: else fi;
    goto close;

end_runs:
    deleted[o]; goto start;

deletion:
    atomic { ours = (reservedFor == o + 1) };
    if
    :: ours ->
        atomic {
            COPY(w, RESERVE) = 0;
            unsettled(w); if :: is -> goto close :: else fi              // LetGo
        };
        grant(w, o, UNRESERVE); send(w, o, UNRESERVE, UNRESERVE, 0); await(w); ended(w, o, UNRESERVE, before);
        goto close
    :: !ours
    fi;
#ifndef NO_SETTLE_FINAL
    atomic { unsettled(w); if :: is -> goto close :: else fi };
#endif
    atomic { mayFinish(w, o); promise(NothingLeft, reservedFor != o + 1); goneNow(w, o); goto gone };
close:
    atomic { closeRecord(w, o); goto start };
gone:
    skip
}

inline execute(i) {
    printf("EV MAAS does %e for cluster %d\n", WORD(kind[i]), forObject[i]);
    if
    :: kind[i] == RESERVE ->
        if
        :: reservedFor == 0 ->
            promise(NothingForNobody, there[forObject[i]]); reservedFor = forObject[i] + 1; result[i] = 1
        :: else
        fi
    :: kind[i] == UNRESERVE ->           // by its number, whoever has it
        if
        :: reservedFor != 0 -> promise(NothingOfOthers, reservedFor == forObject[i] + 1); reservedFor = 0; result[i] = 1
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
    :: atomic { reservedFor == 0 -> reservedFor = OTHERS; printf("EV another user reserves the address\n") }
    :: atomic { reservedFor == OTHERS -> reservedFor = 0; printf("EV the other user frees it\n") }
    od
}
active proctype Time() {
    byte x;
end:
    do SETTLE(0, RESERVE) SETTLE(0, UNRESERVE) SETTLE(1, RESERVE) SETTLE(1, UNRESERVE) od
}
active proctype User() {
    byte x;
    if :: delete(0) :: skip fi; if :: delete(1) :: skip fi
}
init {
    atomic {
        there[0] = 1; there[1] = 1; run Worker(0, 0); run Worker(1, 1);
#if MANAGERS > 1
        run Worker(2, 0); run Worker(3, 1)
#endif
    }
}

// SPDX-License-Identifier: Apache-2.0
//
// What takes Machines of a control plane down: the remediation switches a machine off and on, the evacuation deletes a
// Machine. Each decides in the moment in which it acts, under the control plane's lock, and from what the API server
// says (controllers/internal/disruption). A control plane of three; members become sick and well at any time. A member
// is a VM, and goes down with its host too, which is remedied whether the member is sick or not.
//
// This model has no calls to record: what a remediation does is in the record of its MaasRemediation before MAAS is
// asked, and of an evacuation there is nothing but the deletion.

#include "promises.pml"

#define MEMBERS 3
bit sick[MEMBERS];              // by itself, as Cluster API's conditions say
bit goes[MEMBERS];              // its Machine is being deleted
bit off[MEMBERS];               // its machine is switched off now
bit boots[MEMBERS];             // its host is on again; it does not run yet, and Cluster API need not say so
bit step[MEMBERS];              // recorded: a remediation of its host switches it off now, or waits for the Node
bit cached[MEMBERS];            // the same in a cache that lags
bit lock;                       // one in the process: in a hand-over both managers have one

#ifdef NO_LIVE_READ             // decided from a cache
#define GOING(m) cached[m]
#else
#define GOING(m) step[m]
#endif
#define WELL(m) (!sick[m] && !goes[m] && !GOING(m))
// Two of three are needed, and none of the others is being deleted.
#define REST(a, b) (WELL(a) && WELL(b))
#define MAY(m) ((m == 0 && REST(1, 2)) || (m == 1 && REST(0, 2)) || (m == 2 && REST(0, 1)))

inline take() {
#ifdef NO_LOCK
    skip
#else
    atomic { !lock -> lock = 1 }
#endif
}
inline letOthers() {
#ifdef NO_LOCK
    skip
#else
    lock = 0
#endif
}
// Whoever acts makes it worse by itself only if the others are well when it acts. That one becomes sick in between is
// nobody's doing: the look lasts for seconds, and is bounded.
#define DOWN(m) (goes[m] || off[m] || boots[m])
#define WORSE(m) promise(QuorumHolds, (m == 0 || !DOWN(0)) && (m == 1 || !DOWN(1)) && (m == 2 || !DOWN(2)))

active proctype Remediation() {
    byte m; bit may;
end:
    do
    :: atomic { if :: m = 0 :: m = 1 :: m = 2 fi };
        take();
        atomic { may = MAY(m) && !goes[m] };
        if
        :: may ->
#ifdef NO_STEP_FIRST                     // the lock ends before the step is stored
            letOthers(); step[m] = 1;
#else
            step[m] = 1; letOthers();
#endif
            atomic { WORSE(m); off[m] = 1; printf("EV member %d is switched off\n", m) };
            atomic { off[m] = 0; boots[m] = 1; printf("EV the host of member %d is on\n", m) };
#ifdef NO_RECOVER                        // a host that is on counts as one whose VMs run
            step[m] = 0;
#endif
            atomic { boots[m] = 0; sick[m] = 0; printf("EV member %d is on\n", m) };
            atomic { step[m] = 0; may = 0; goto again }
        :: !may
        fi;
        letOthers();
again: may = 0
    od
}
active proctype Evacuation() {
    byte m; bit may;
end:
    do
    :: atomic { if :: !goes[0] -> m = 0 :: !goes[1] -> m = 1 :: !goes[2] -> m = 2 fi };
        take();
        atomic { may = MAY(m) && !sick[m] && !GOING(m) };
        if
        :: may -> atomic { WORSE(m); goes[m] = 1; printf("EV member %d is deleted\n", m) }
        :: !may
        fi;
        letOthers(); may = 0
    od
}
active proctype World() {
end:
    do
    :: atomic { sick[0] = !sick[0] } :: atomic { sick[1] = !sick[1] } :: atomic { sick[2] = !sick[2] }
    :: atomic { goes[0] -> goes[0] = 0; printf("EV member 0 is replaced\n") }
    :: atomic { goes[1] -> goes[1] = 0; printf("EV member 1 is replaced\n") }
    :: atomic { goes[2] -> goes[2] = 0; printf("EV member 2 is replaced\n") }
    :: cached[0] = step[0] :: cached[1] = step[1] :: cached[2] = step[2]
    od
}

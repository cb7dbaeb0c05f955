// SPDX-License-Identifier: Apache-2.0
//
// What the models promise, in the words of docs/reliability.md, which names them.

mtype = {
    NeverTwo,           // an object never has two machines, nor two VMs that run
    NothingOfOthers,    // no call, early or late, changes what is another user's or another object's
    NothingForNobody,   // nothing is acquired or made for an object that is gone
    NothingLeft,        // the finalizer goes last: nothing of the object is left then that nobody remembers
    DeviceOutlivesVM,   // a VM on a direct host has its device, which goes after it
    RunningVMStays,     // no call stops the VM that is to run
    KeptIsKnown,        // a machine that is kept is in the MaasCluster's record until it has another user or is free
    QuorumHolds         // never two of one control plane are down
}
#define promise(sentence, holds) if :: (holds) :: else -> printf("BROKEN %e\n", sentence); assert(false) fi

// Package collective lets the members of a group reduce, gather and exchange tensors.
//
// A [Group] is one member's end of a group: a value that a caller makes and passes on. It is a
// [tensorops.Group], which the streams of devices use, and has methods of its own that return
// handles, for callers without a stream. The tensors lie in memory that the host can address.
//
//	members := collective.Local("dp of stage 1", 2) // in this process; each member gets one
//	h := members[0].AllReduce(t, tensorops.Sum)
//	err := h.Wait(ctx)
//	members[0].Leave(nil)
//
// # What holds
//
//   - The members' collectives meet in the order in which each member starts them. Each carries a number,
//     and what it is: a member that brings another one is named in the error at all ends, and the group is over.
//   - Every element is reduced in the order of the members' ranks, from 0 on, whatever carries it and
//     however it is cut: float32 by float32 operations, bfloat16 widened to float32 and rounded once at
//     the end. A mean is the sum divided by the number of members. So results are the same to the bit at every
//     member and in every run, and reduce_scatter gives the parts of what all_reduce gives.
//   - Who starts a collective lends its tensors until done is called. After an error, what it was to write is
//     undefined.
//   - A member that leaves ends the collectives of the others, with its name. Nobody waits silently:
//     [Group.Status] says for what, since when and for whom.
//
// The package may import tensorops and the loops of tensorops/cpu. It must never know actors, stages, schedules, or how bytes travel between
// processes.
package collective

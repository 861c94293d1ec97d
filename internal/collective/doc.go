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
// # How members meet
//
// In one process the members' tensors are read and written where they lie (local.go). Between processes each
// member sends every slice to the member that reduces it, which sends the result to all (exchange.go, plan.go);
// small tensors go to all members whole. A [Carrier] moves the messages: package cluster/internal/groups has one
// over the cluster's lane.
//
// Between processes of one host, contributions are reduced where they lie in shared memory. The carrier lends
// the memory ([Loan]), and the group returns it when they are summed or when the group is over. A collective ends
// for a member when its contribution has left. If a member computed before that, it would delay the others.
//
// # What holds
//
//   - The members' collectives meet in the order in which each member starts them. Each carries a number and
//     its kind and shapes. A member that brings another one is named in the error at all ends, and the group is over.
//   - Every element is reduced in the order of the members' ranks, from 0 on, whatever carries it and
//     however it is cut: float32 by float32 operations, bfloat16 widened to float32 and rounded once at
//     the end. A mean is the sum divided by the number of members. So results are the same to the bit at every
//     member and in every run, and reduce_scatter gives the parts of what all_reduce gives.
//   - The caller lends the tensors of a collective until done is called. After an error its results are
//     undefined.
//   - A member that leaves ends the collectives of the others, with its name. No wait is silent:
//     [Group.Status] says what a member waits for, since when and for whom.
//
// The package must never know actors, stages, schedules, or how bytes travel between processes.
package collective

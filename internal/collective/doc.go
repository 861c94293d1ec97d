// Package collective lets the members of a group reduce, gather and exchange tensors.
//
// A [Group] is one member's end of a group. The caller makes it and passes it on. It is a
// [tensorops.Group], which the streams of devices use. It also has methods that return handles, for
// callers without a stream. The tensors are in memory that the host can address.
//
//	members := collective.Local("dp of stage 1", 2) // in this process; each member gets one
//	h := members[0].AllReduce(t, tensorops.Sum)
//	err := h.Wait(ctx)
//	members[0].Leave(nil)
//
// # How members exchange data
//
// In one process, the members' tensors are read and written in place (local.go). Between processes,
// each member sends every slice to the member that reduces it, which sends the result to all
// (exchange.go, plan.go). Small tensors are sent whole to all members. A [Carrier] moves the
// messages: package cluster/internal/groups has one that uses the cluster's lane.
//
// Between processes on one host, contributions are reduced directly in shared memory. The carrier
// lends the memory ([Loan]), and the group returns it when the contributions are summed or when the
// group ends. A collective ends for a member when its contribution has left: a member that computed
// before that would delay the others.
//
// # Guarantees
//
//   - The members' collectives are matched in the order in which each member starts them. Each carries
//     a number, its kind and its shapes. A member that starts a different one is named in the error at
//     all members, and the group ends.
//   - Every element is reduced in the order of the members' ranks, from 0 on, whatever carries it and
//     however it is cut: float32 with float32 operations, bfloat16 widened to float32 and rounded once
//     at the end. A mean is the sum divided by the number of members. So results are bit-identical at
//     every member and in every run, and reduce_scatter returns the parts of the result of all_reduce.
//   - The tensors of a collective belong to the group until done is called. After an error its results
//     are undefined.
//   - A member that leaves ends the collectives of the others, with an error that names it. No wait is
//     silent: [Group.Status] says what a member waits for, since when and for whom.
//
// The package must never know actors, stages, schedules, or how bytes travel between processes.
package collective

// Package p2p has the transfers between the stages of a pipeline under the names of Megatron-Core,
// ColossalAI and MindSpeed, for programs that are ported from there. A Port is one stage's end of the
// transfers.
//
//	ports := p2p.Local(4, p2p.Config{})     // in this process; each stage gets one
//	h := port.SendForwardRecvBackward([]tensorops.Tensor{y}, p2p.Call{Want: p2p.Like(y)})
//	got, err := h.Wait(ctx)                 // got.Backward
//
// # Guarantees
//
//   - A message has an address (from, direction, number), and no send waits for a receive. So calls complete in any
//     order, as long as each receive has its send; the combined calls are only a convenience.
//   - Every call returns a Handle at once, and its transfers overlap with later work. Handle.Wait waits for them.
//   - A message carries one or more tensors of any shape and type, and describes them. Call.Want, if it is set, is
//     compared with the received tensors.
//   - The first stage receives no activations and sends no gradients; the last stage receives no gradients and sends no
//     activations. Such calls end at once without tensors, whatever Call.Prev and Call.Next are. In a U-shape, where the
//     first stage also has the last layers, Call.End says to which end a call belongs.
//   - A call that is refused for its tensors or its stages begins none of its transfers. If a send fails later, Wait
//     returns the received tensors with the error.
//   - If stages have tensor groups of different sizes, Config.Group is a stage's group. Only the group's first rank sends to
//     and receives from other stages. It broadcasts received tensors to the other ranks, whose ports Member makes.
//   - A send takes ownership of its tensors. Within a process a tensor is passed on unchanged. To another process its bytes
//     are sent, and it is released when they have arrived. A view of some columns arrives as a separate tensor, without gaps.
//
// A training run doesn't use this package: its stages are actors, whose messages have their own
// addresses (package actors). The package must never know stages or schedules.
package p2p

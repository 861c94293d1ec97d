// Package p2p has the transfers between the stages of a pipeline under the names that Megatron-Core,
// ColossalAI and MindSpeed give them, for programs that come from there: a Port is a stage's end of
// them.
//
//	ports := p2p.Local(4, p2p.Config{})     // in this process; each stage gets one
//	h := port.SendForwardRecvBackward([]tensorops.Tensor{y}, p2p.Call{Want: p2p.Like(y)})
//	got, err := h.Wait(ctx)                 // got.Backward
//
// # What holds
//
//   - A message has an address, (from, direction, number), and no send waits for a receive: calls in any order
//     end, as long as each receive has its send. So the combined calls are calls of convenience.
//   - Every call returns at once with a Handle; transfers overlap with what follows. Who wants to wait calls Wait.
//   - A message carries one or more tensors of any shape and type, and says which. What a call
//     expects is compared with what came: see Call.Want.
//   - The first stage receives no activation and sends no gradient, the last one receives no
//     gradient and sends no activation: such calls end at once with nothing, whatever Call.Prev and Call.Next are. In a U-shape,
//     where the first stage has the last layers too, Call.End says of which half of it a call is.
//   - A call that is refused, for its tensors or its stages, begins none of its transfers. One whose send fails later returns
//     what it received with the error.
//   - Where stages have tensor groups of different sizes, Config.Group is a stage's: its first rank alone talks to other
//     stages, and broadcasts what it gets to the others, whose ports Member makes.
//   - Sending gives a tensor away. In one process it is handed over as it is; to another process its
//     bytes go, and it is released when they are there. A view of some columns arrives as a tensor of its own, without gaps.
//
// A training run doesn't use the package: its stages are actors, whose messages have addresses of
// their own (package actors). The package must never know stages or schedules.
package p2p

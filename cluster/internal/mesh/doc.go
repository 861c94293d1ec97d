// Package mesh joins the actor systems of a cluster's processes: a message that an actor
// sends to the PID of one in another process is packed by its attempt's codec, and goes
// over the link if it is a control message, over the lane if it owns tensors. Neither the
// sender nor the receiver sees any of it.
//
// The package knows that there are attempts, codecs, links and lanes. It doesn't know who
// is a member, what a run is, or how an attempt is placed.
package mesh

package collective

// Carrier carries the messages of one group between its members in different processes. The caller
// that makes a Carrier must ensure that a member's messages reach the same group at the other
// members, even if they have not made it yet. It is safe for concurrent use.
type Carrier interface {
	// Receive sets the receiver of incoming messages. It is called once, before anything is sent.
	Receive(r Receiver)
	// Send queues a message to a member and never blocks. header is copied. payload is not copied,
	// and must not change until done is called, exactly once: with nil when the member has received
	// all of it. left is called at most once, before done, when the message needs no more of this
	// process's time; if free is true, payload may be changed from then on. Both may be called
	// before Send returns. Messages may arrive in another order, but none arrives twice.
	Send(to int, header []byte, payload [][]byte, left func(free bool), done func(error))
	// Frees reports whether a payload of the given size will probably be free when it has left.
	Frees(to, bytes int) bool
	// Tell sends a note. It may arrive before earlier messages, and is sent even after Close.
	Tell(to int, note []byte)
	// Close closes the carrier. When it returns, all done functions have been called, and the
	// memory of sent and received messages is no longer used. It must not be called from a Receiver
	// or from done.
	Close()
}

// Receiver receives messages from a carrier. Its methods must not block, nor close the carrier.
type Receiver interface {
	// Take is called when a message's header has arrived. It returns memory of the lengths lens for
	// its payload, and a function that is called once with the outcome. After an error the payload
	// is discarded. loan is nil, or gives access to the payload in the carrier's memory: a receiver
	// that keeps it during the call needs no memory for it.
	Take(from int, header []byte, lens []int, loan Loan) (payload [][]byte, done func(error), err error)
	// Told delivers a note.
	Told(from int, note []byte)
	// Gone says that a member's process exited or disconnected.
	Gone(from int, cause error)
}

// Loan is a payload in the carrier's memory, which is shared with the sender.
type Loan interface {
	// Keep returns the payload, its parts one after another. It remains valid until Return, which
	// must be called whatever happens to the message and the carrier.
	Keep() []byte
	Return()
}

// LimitNoteBytes limits a note; longer notes are cut.
const LimitNoteBytes = 4096

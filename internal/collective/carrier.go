package collective

// Carrier carries the messages of one group between its members in different processes. Whoever makes one
// sees to it that a member's messages reach the same group of the others, also where they have still to
// make it. Safe for concurrent use.
type Carrier interface {
	// Receive says who takes what comes. It is called once, before anything is sent.
	Receive(r Receiver)
	// Send queues a message to a member and never blocks. header is copied; payload isn't, and stays as it is
	// until done is called, once: with nil when the member has all of it. left is called at most once and before done, when
	// the message takes no more of this process's time; with free payload may be written from then on. Both may be
	// called before Send returns. Messages may arrive in another order, but none twice.
	Send(to int, header []byte, payload [][]byte, left func(free bool), done func(error))
	// Frees says whether a payload of so many bytes is likely to be free when it has left.
	Frees(to, bytes int) bool
	// Tell sends a note, which may arrive before what was sent earlier, and also leaves after Close.
	Tell(to int, note []byte)
	// Close ends it. When it returns, all done functions have been called, and the memory of no message is used any
	// more, neither of what was sent nor of what was taken. It is not called from a Receiver or done.
	Close()
}

// Receiver takes what a carrier brings. None of its methods may block, or close the carrier.
type Receiver interface {
	// Take is called when a message's header has come. It returns memory of the lengths lens for its payload,
	// and a function that is called once with the outcome. After an error the payload is thrown away. loan is nil, or
	// the payload where the carrier has it: who keeps it during the call needs no memory for it.
	Take(from int, header []byte, lens []int, loan Loan) (payload [][]byte, done func(error), err error)
	// Told brings a note.
	Told(from int, note []byte)
	// Gone says that a member's process is gone.
	Gone(from int, cause error)
}

// Loan is a payload where a carrier has it: in memory that is shared with the sender.
type Loan interface {
	// Keep returns it, the parts one after another. It stays until Return, which has to be called, whatever becomes of the
	// message and the carrier.
	Keep() []byte
	Return()
}

// LimitNoteBytes bounds a note; what is longer is cut.
const LimitNoteBytes = 4096

package scheduler

import "time"

// PartTime says when a part of an action ran: what a rank computed before, between or after exchanges of tokens
// with the ranks of their experts.
type PartTime struct {
	Start, End time.Time
	// Exchange is the exchange that follows the part: FD, FC, BD or BC; 0: the part is the last of its
	// action. Sent is when its first tokens left, Came when its last ones had come.
	Exchange   Type
	Sent, Came time.Time
}

package checkpoint

import "errors"

// State is what is known of a checkpoint, or of a part of one.
type State string

// The states. A checkpoint with several of them is in the last one: as long as a part of it is
// unknown, it is not proven to be damaged.
const (
	StateIntact     State = "intact"
	StateUnverified State = "not verified" // another program's folder
	StateDamaged    State = "damaged"
	StateMissing    State = "missing"
	StateUnreadable State = "unreadable"
	StateTooNew     State = "too new"
)

var states = []State{StateIntact, StateUnverified, StateDamaged, StateMissing, StateUnreadable, StateTooNew}

// stateOf returns the state for an error of opening a checkpoint.
func stateOf(err error) State {
	for _, s := range []State{StateTooNew, StateUnreadable, StateMissing, StateDamaged} {
		if errors.Is(err, s.err()) {
			return s
		}
	}
	return StateUnreadable
}

// err returns the error for the state.
func (s State) err() error {
	switch s {
	case StateMissing:
		return ErrMissing
	case StateUnreadable:
		return ErrUnreadable
	case StateTooNew:
		return ErrVersion
	case StateUnverified:
		return errUnverified
	default:
		return ErrDamaged
	}
}

// advice says what a user can do about a checkpoint.
func (s State) advice() string {
	switch s {
	case StateMissing:
		return "restore the missing files"
	case StateUnreadable:
		return "make it readable"
	case StateTooNew:
		return "use the program that wrote it, or a newer one"
	default:
		return "replace it with a copy"
	}
}

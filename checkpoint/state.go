package checkpoint

import "errors"

// State is what is known of a checkpoint, or of a part of one.
type State string

// The states. A checkpoint in several of them is in the last: as long as something
// of it is unknown, it is not proven to be damaged.
const (
	StateIntact     State = "intact"
	StateUnverified State = "not verified" // a foreign directory
	StateDamaged    State = "damaged"
	StateMissing    State = "missing"
	StateUnreadable State = "unreadable"
	StateTooNew     State = "too new"
)

var states = []State{StateIntact, StateUnverified, StateDamaged, StateMissing, StateUnreadable, StateTooNew}

// stateOf is the state that an error of opening a checkpoint stands for.
func stateOf(err error) State {
	for _, s := range []State{StateTooNew, StateUnreadable, StateMissing, StateDamaged} {
		if errors.Is(err, s.err()) {
			return s
		}
	}
	return StateUnreadable
}

// err is the error that stands for the state.
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

// advice says what a person can do about a checkpoint.
func (s State) advice() string {
	switch s {
	case StateMissing:
		return "restore what is missing"
	case StateUnreadable:
		return "make it readable"
	case StateTooNew:
		return "use the program that wrote it, or a newer one"
	default:
		return "replace it by a copy"
	}
}

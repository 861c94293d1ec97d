package chat

// none is Python's None, and JSON's null. The library has one nil for that and for what is not
// defined, which templates tell apart: None prints as "None", is defined, and is none. A channel
// without values, as the library sees it, is a value that is false.
type none chan struct{}

// null is the one value of none. It is closed, for the library waits for what a channel holds.
var null = func() none {
	c := make(none)
	close(c)
	return c
}()

func (none) String() string { return "None" }

package words

// Explained returns err with another text, for the user who can fix it. errors.Is and errors.As still find err.
func Explained(err error, text string) error { return &explained{text, err} }

type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

package samples

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/registry"
)

// format is a format that the program has registered.
type format struct {
	open func(o Options) (Data, error)
}

// own holds the formats that the program has registered. Their names must differ from those of this
// package's formats and of the text formats.
var own = registry.New[format]("data", append(builtIn(), "text", "documents", "uint16", "uint32")...)

func builtIn() []string { return slices.Sorted(maps.Keys(formats)) }

// Formats returns the names of this package's formats and of those that the program has registered.
func Formats() []string { return append(builtIn(), own.Names()...) }

// Register adds a format: if data.format is its name, open returns the training data and the
// validation data, which may be nil. The program decides what the options mean. If it uses them
// with Open to read other files than CSV, it must clear Header. Every process that opens the data
// must get the same samples, each time.
//
// Call Register at the start of the program, in an init function or at the top of main, before
// anything else is called. It panics if the name is not a plain lower-case word of at most 64
// bytes, or is taken, or if open is nil.
func Register(name string, open func(o Options) (train, val Dataset, err error)) {
	if open == nil {
		panic(fmt.Sprintf("cannot register data %.100q: its function is nil", name))
	}
	own.Add(name, format{func(o Options) (Data, error) {
		train, val, err := open(o)
		if err == nil && train == nil {
			err = fmt.Errorf("%w: it returned no training data", ErrOptions)
		}
		return checked(name, Data{Train: train, Val: val}, err)
	}})
}

// RegisterStream adds a format whose samples are trained on in the order of the stream. See
// Register, and NewStreamSource for seekable.
func RegisterStream(name string, open func(o Options) (train OpenStream, seekable bool, val Dataset, err error)) {
	if open == nil {
		panic(fmt.Sprintf("cannot register data %.100q: its function is nil", name))
	}
	own.Add(name, format{func(o Options) (Data, error) {
		train, seekable, val, err := open(o)
		switch {
		case err != nil:
			return checked(name, Data{}, err)
		case train == nil:
			return checked(name, Data{}, fmt.Errorf("%w: it returned no training data", ErrOptions))
		}
		stream, err := NewStreamSource(train, seekable)
		return checked(name, Data{Stream: stream, Val: val}, err)
	}})
}

// checked checks the data that a registered format has opened.
func checked(name string, d Data, err error) (Data, error) {
	var train []Field
	switch {
	case err != nil:
	case d.Train != nil:
		train = d.Train.Fields()
		if err = CheckFields(train); err == nil {
			err = checkNames(ClassNames(d.Train))
		}
	default:
		train = d.Stream.Fields()
	}
	if err == nil && d.Val != nil {
		if err = CheckFields(d.Val.Fields()); err == nil {
			err = alike(train, d.Val.Fields())
		}
	}
	if err != nil {
		if d.Stream != nil {
			_ = d.Stream.Close() // only its start was read
		}
		return Data{}, fmt.Errorf("data.format = %q, which this program registered: %w", name, err)
	}
	return d, nil
}

// checkNames refuses names of classes that a run's files could not store.
func checkNames(names []string) error {
	for id, name := range names {
		if !utf8.ValidString(name) {
			return fmt.Errorf("%w: the name of class %d, %s, is not UTF-8", ErrOptions, id, shown(name))
		}
	}
	return nil
}

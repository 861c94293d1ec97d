package samples

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/registry"
)

// format is one that the program has registered.
type format struct {
	open func(o Options) (Data, error)
}

// own are the formats that the program has registered. None may have the name of one of this
// package's, or of a format of text.
var own = registry.New[format]("data", append(builtIn(), "text", "documents", "uint16", "uint32")...)

func builtIn() []string { return slices.Sorted(maps.Keys(formats)) }

// Formats lists this package's formats and those that the program has registered.
func Formats() []string { return append(builtIn(), own.Names()...) }

// Register adds a format: where data.format has its name, open makes the data to train on and
// that to validate on, which may be nil for none. The options are the program's to make
// something of; Header must be cleared where Open is to read other files than CSV with them.
// Every process that opens the data, and each time it is opened, must get the same samples.
//
// It is for the beginning of a program, an init function or main, before anything else is
// called. Register panics if the name is not a plain lower-case word of at most 64 bytes, or
// is taken, and if open is nil.
func Register(name string, open func(o Options) (train, val Dataset, err error)) {
	if open == nil {
		panic(fmt.Sprintf("data %.100q can't be registered: its function is nil", name))
	}
	own.Add(name, format{func(o Options) (Data, error) {
		train, val, err := open(o)
		if err == nil && train == nil {
			err = fmt.Errorf("%w: it gave nothing to train on", ErrOptions)
		}
		return checked(name, Data{Train: train, Val: val}, err)
	}})
}

// RegisterStream adds a format whose samples are trained on as they come. See Register, and
// NewStreamSource for what seekable says.
func RegisterStream(name string, open func(o Options) (train OpenStream, seekable bool, val Dataset, err error)) {
	if open == nil {
		panic(fmt.Sprintf("data %.100q can't be registered: its function is nil", name))
	}
	own.Add(name, format{func(o Options) (Data, error) {
		train, seekable, val, err := open(o)
		switch {
		case err != nil:
			return checked(name, Data{}, err)
		case train == nil:
			return checked(name, Data{}, fmt.Errorf("%w: it gave nothing to train on", ErrOptions))
		}
		stream, err := NewStreamSource(train, seekable)
		return checked(name, Data{Stream: stream, Val: val}, err)
	}})
}

// checked looks at what a registered format has opened.
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
			_ = d.Stream.Close() // nothing was read but its beginning
		}
		return Data{}, fmt.Errorf("data.format = %q, which this program has registered: %w", name, err)
	}
	return d, nil
}

// checkNames refuses names of classes that a run's files could not keep.
func checkNames(names []string) error {
	for id, name := range names {
		if !utf8.ValidString(name) {
			return fmt.Errorf("%w: the name of class %d, %s, is not UTF-8", ErrOptions, id, shown(name))
		}
	}
	return nil
}

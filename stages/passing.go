package stages

import "fmt"

// Some models pass more from layer to layer than the residual stream: an input of each layer, which the embedding computes, and the keys
// and values of a layer that later layers use. They travel behind the channels of the residual stream, in the same tensor:
//
//	[residual stream | inputs of this layer and of the later ones | keys, values of a layer | …]
//
// A layer takes out what is its own, so the tensor gets narrower. An edge between chunks stays one tensor between neighbors, whatever
// a later chunk needs. Its gradient comes back as one tensor, to which each layer adds its own part in the order of the layers. So no bit
// depends on where the model is cut.

// passing describes these tensors. The zero value: layers pass nothing but the residual stream.
type passing struct {
	hidden, layers int
	input          int      // channels of a layer's input
	kept           []keptKV // in the order of the channels
}

// keptKV are the keys and values of one decoder layer that later ones use, up to the last one.
type keptKV struct {
	source, last int
	width        int // channels of the keys, and of the values
}

// columns are the channels [from, to) of a tensor.
type columns struct{ from, to int }

func (s columns) width() int { return s.to - s.from }

// halves returns the keys and the values.
func (s columns) halves() [2]columns {
	at := s.from + s.width()/2
	return [2]columns{{s.from, at}, {at, s.to}}
}

// passing returns what the decoder layers pass on.
func (c Config) passing() passing {
	p := passing{hidden: c.Hidden, layers: c.Layers, input: c.LayerInput}
	if c.SharedKV == 0 {
		return p
	}
	for _, windowed := range []bool{true, false} {
		of := keptKV{source: -1, last: -1}
		for i := range c.Layers {
			switch {
			case c.window(i) > 0 != windowed:
			case i < c.Layers-c.SharedKV:
				of.source = i
			default:
				of.last = i
			}
		}
		if of.source >= 0 && of.last >= 0 {
			l := c.layer(of.source)
			of.width = l.kvWidth()
			p.kept = append(p.kept, of)
		}
	}
	return p
}

// keysOf returns the decoder layer whose keys and values layer i uses: itself, or an earlier one of its kind, with or without a window.
func (c Config) keysOf(i int) int {
	first := c.Layers - c.SharedKV
	if i < first || i >= c.Layers {
		return i
	}
	for from := first - 1; from >= 0; from-- {
		if c.window(from) > 0 == (c.window(i) > 0) {
			return from
		}
	}
	return i // checkPassing refuses it
}

// keepsKV reports whether later layers use the keys and values of decoder layer i.
func (c Config) keepsKV(i int) bool {
	first := c.Layers - c.SharedKV
	if c.SharedKV == 0 || i >= first {
		return false
	}
	alike := func(j int) bool { return c.window(j) > 0 == (c.window(i) > 0) }
	for j := i + 1; j < first; j++ {
		if alike(j) {
			return false
		}
	}
	for j := first; j < c.Layers; j++ {
		if alike(j) {
			return true
		}
	}
	return false
}

// inputs returns the channels of all inputs in the tensor before decoder layer i: first the layer's own.
func (p *passing) inputs(i int) columns {
	return columns{p.hidden, p.hidden + p.input*max(0, p.layers-i)}
}

// keys returns the channels of the keys and values of a layer in the tensor before decoder layer i; there are none before that layer and
// after the last one that uses them.
func (p *passing) keys(i, source int) (at columns) {
	at.from = p.inputs(i).to
	at.to = at.from
	for _, k := range p.kept {
		n := 0
		if k.source < i && i <= k.last {
			n = 2 * k.width
		}
		at.to = at.from + n
		if k.source == source {
			return at
		}
		at.from = at.to
	}
	return columns{at.to, at.to}
}

// width returns the channels of the tensor before decoder layer i.
func (p *passing) width(i int) int { return p.keys(i, -1).to }

// any reports whether layers pass anything on beside the residual stream.
func (p *passing) any() bool { return p.input > 0 || len(p.kept) > 0 }

// passes reports whether the tensor before decoder layer i, or after it, has more channels than the residual stream.
func (p *passing) passes(i int) bool { return p.width(i) > p.hidden || p.width(i+1) > p.hidden }

// EdgeWidth returns the channels of the tensor between the layers layer−1 and layer of a language model, numbered as in Symbols. The
// embedding is layer 0.
func (m *Model) EdgeWidth(layer int) int {
	if !m.passing.any() {
		return m.Config.Hidden
	}
	return m.passing.width(min(max(layer-1, 0), m.passing.layers))
}

// carrying says what one decoder layer does with the channels behind the residual stream.
type carrying struct {
	in, out int     // channels of its input and of its output
	stream  columns // of the residual stream, in both
	input   columns // of the layer's own input, in its input
	// Keys and values of an earlier layer that it uses, in its input and, if a later layer uses them, too, in its output.
	given, givenOn columns
	kept           columns   // its own keys and values, in its output
	moves          []passage // other channels
}

// passage is where channels are in a layer's input and in its output.
type passage struct{ in, out columns }

// carrying returns what decoder layer i does; nil: its input and output are the residual stream.
func (p *passing) carrying(i int, l *layerSpec) *carrying {
	if i >= p.layers || !p.any() || !p.passes(i) {
		return nil
	}
	c := &carrying{in: p.width(i), out: p.width(i + 1), stream: columns{0, p.hidden}}
	all := p.inputs(i)
	c.input = columns{all.from, all.from + p.input}
	c.move(columns{c.input.to, all.to}, p.inputs(i+1))
	for _, k := range p.kept {
		in, out := p.keys(i, k.source), p.keys(i+1, k.source)
		switch {
		case l.keeps && k.source == i:
			c.kept = out
		case l.shares && k.source == l.source:
			c.given, c.givenOn = in, out
		default:
			c.move(in, out)
		}
	}
	return c
}

func (c *carrying) move(in, out columns) {
	if in.width() > 0 && out.width() > 0 {
		c.moves = append(c.moves, passage{in, out})
	}
}

// passed names what the layers pass on beside the residual stream.
func (c Config) passed() string {
	switch {
	case c.SharedKV == 0:
		return inputSwitch
	case c.LayerInput == 0:
		return sharedKVSwitch
	}
	return inputSwitch + " and " + sharedKVSwitch
}

// checkPassing checks the sizes of what layers pass on.
func (c Config) checkPassing() error {
	switch {
	case c.LayerInput > 0 && (c.Layers == 0 || c.Layers*c.LayerInput > MaxFFN):
		return fmt.Errorf("%w: %d layers have inputs of %d channels: together these must be from 1 to %d", ErrModel, c.Layers, c.LayerInput,
			MaxFFN)
	case c.SharedKV > 0 && c.SharedKV >= c.Layers:
		return fmt.Errorf("%w: %d of %d layers share keys and values: at least one must have its own", ErrModel, c.SharedKV, c.Layers)
	case c.SharedKV > 0 && !c.ofAllKinds():
		return fmt.Errorf("%w: the last %d layers share keys and values, but none of the %d layers before them is of the kind of one of them",
			ErrModel, c.SharedKV, c.Layers-c.SharedKV)
	case c.WideShared && (c.SharedKV == 0 || c.FFN > MaxFFN/2):
		return fmt.Errorf("%w: %s: there are %d such layers, and twice the ffn of %d must not exceed %d", ErrModel, wideSwitch, c.SharedKV, c.FFN,
			MaxFFN)
	}
	return nil
}

// UnusedTensors returns the names of tensors that published files have beside the weights of a model: the keys and values of layers that
// use those of an earlier layer.
func (c Config) UnusedTensors() (names []string) {
	f, ok := languageOf(c.Family).(*decoder)
	if !ok {
		return nil
	}
	for i := c.Layers - c.SharedKV; i < c.Layers; i++ {
		for _, name := range []string{f.names.k, f.names.v, f.names.kNorm} {
			for _, end := range []string{".weight", ".bias"} {
				names = append(names, fmt.Sprintf("%s.%d.%s%s", f.names.layers, i, name, end))
			}
		}
	}
	return names
}

// kinds returns which kinds of layers, with and without a window, are among some decoder layers.
func (c Config) kinds(first, last int) (windowed, full bool) {
	for i := first; i < last; i++ {
		if c.window(i) > 0 {
			windowed = true
		} else {
			full = true
		}
	}
	return windowed, full
}

// ofAllKinds reports whether the layers before those that share keys and values have all kinds of layers.
func (c Config) ofAllKinds() bool {
	windowed, full := c.kinds(0, c.Layers-c.SharedKV)
	allWindowed, allFull := c.kinds(0, c.Layers)
	return windowed == allWindowed && full == allFull
}

package data

// OpenPacks is the largest number of sequences that a Packer fills at a time. With more, sequences are a
// little fuller, and each record takes longer to place.
const OpenPacks = 64

// Packer puts short records together into sequences of at most context positions, one after the other. A
// record goes into the first open sequence that has room for it. If none has, the Packer opens another
// one; once OpenPacks are open, it first completes the fullest. So it holds at most OpenPacks·context
// positions, however many records there are. The sequences depend only on the records and their order.
type Packer[T any] struct {
	context int
	open    []pack[T]
}

type pack[T any] struct {
	records   []T
	positions int
}

// NewPacker returns a packer of sequences of at most context positions.
func NewPacker[T any](context int) *Packer[T] { return &Packer[T]{context: context} }

// Add places a record of 1 to context positions. It returns the records of a sequence that is complete now;
// nil: none is.
func (p *Packer[T]) Add(record T, positions int) (done []T) {
	for i := range p.open {
		o := &p.open[i]
		if o.positions+positions > p.context {
			continue
		}
		o.records, o.positions = append(o.records, record), o.positions+positions
		if o.positions == p.context {
			return p.take(i)
		}
		return nil
	}
	one := pack[T]{[]T{record}, positions}
	if positions >= p.context {
		return one.records
	}
	if len(p.open) == OpenPacks {
		fullest := 0
		for i := range p.open {
			if p.open[i].positions > p.open[fullest].positions {
				fullest = i
			}
		}
		done = p.take(fullest)
	}
	p.open = append(p.open, one)
	return done
}

// Rest returns the records of an open sequence, the oldest first, and closes it; nil: none is open. Call it
// after the last record, until it returns nil.
func (p *Packer[T]) Rest() []T {
	if len(p.open) == 0 {
		return nil
	}
	return p.take(0)
}

// take removes an open sequence. The others keep their order.
func (p *Packer[T]) take(i int) []T {
	records := p.open[i].records
	p.open = append(p.open[:i], p.open[i+1:]...)
	return records
}

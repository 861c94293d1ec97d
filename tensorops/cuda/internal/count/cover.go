package count

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Run are bytes that a launch has loaded, or stored, equally often.
type Run struct{ At, Bytes, Times uint64 }

// Compare holds what the table says of a launch to what it has loaded and stored when it was
// emulated: nothing outside of the operands, all of each operand, and each byte as often as its
// Use says.
func Compare(c *Cost, loaded, stored []Run) error {
	return errors.Join(compare("loads", c.Reads, loaded), compare("stores", c.Writes, stored))
}

// span are bytes from an address to another.
type span struct{ first, last uint64 }

func (o Operand) whole() span {
	last := o.At + uint64((o.Rows-1)*max(o.Stride, o.RowBytes)+o.RowBytes)
	if o.Of > 0 {
		last = o.At + uint64(o.Of)
	}
	return span{o.At, last}
}

// spans are an operand's rows, or what they are taken of.
func (o Operand) spans() (all []span) {
	if o.Of > 0 || o.Rows == 1 || max(o.Stride, o.RowBytes) == o.RowBytes {
		return []span{o.whole()}
	}
	for row := range o.Rows {
		at := o.At + uint64(row*o.Stride)
		all = append(all, span{at, at + uint64(o.RowBytes)})
	}
	return all
}

func compare(does string, operands []Operand, runs []Run) error {
	var all []span
	for i, o := range operands {
		all = append(all, o.spans()...)
		if err := o.compare(does, operands, i, runs); err != nil {
			return err
		}
	}
	for _, r := range outside(all, runs) {
		return fmt.Errorf("it %s %d bytes at %#x, which are of none of its operands %+v", does, r.Bytes, r.At, operands)
	}
	return nil
}

// compare is of one operand among all.
func (o Operand) compare(does string, all []Operand, at int, runs []Run) error {
	// Where operands have memory in common, it is seen more often.
	most, own := uint64(1), o.whole()
	for i, other := range all {
		if w := other.whole(); i != at && w.first < own.last && own.first < w.last {
			if most++; other.Use != Once {
				most = 1 << 62
			}
		}
	}
	if o.Of > 0 { // of memory in which others may lie, what is not theirs
		var others []span
		for i, other := range all {
			if i != at && other.Of == 0 {
				others = append(others, other.spans()...)
			}
		}
		runs, most = outside(others, runs), 1
	}
	covered, total := uint64(0), uint64(0)
	for _, s := range o.spans() {
		for _, r := range within(runs, s) {
			covered += r.Bytes
			total += r.Bytes * r.Times
			if o.Use == Once && r.Times > most {
				return fmt.Errorf("it %s %d bytes at %#x %d times, want once: operand %+v of %+v", does, r.Bytes, r.At, r.Times, o, all)
			}
		}
	}
	bytes := uint64(o.Rows * o.RowBytes)
	switch {
	case (o.Use == Once || o.Use == Again) && covered != bytes:
		return fmt.Errorf("it %s %d of %d bytes of the operand %+v", does, covered, bytes, o)
	case o.Use == Gathered && most == 1 && total != bytes:
		return fmt.Errorf("it %s %d bytes of %d gathered ones, operand %+v", does, total, bytes, o)
	case o.Use == Some && covered > bytes:
		return fmt.Errorf("it %s %d bytes, of at most %d, of the operand %+v", does, covered, bytes, o)
	}
	return nil
}

// within are the runs' parts in a span. They are in ascending order.
func within(runs []Run, s span) (parts []Run) {
	at, _ := slices.BinarySearchFunc(runs, s.first, func(r Run, first uint64) int { return cmp.Compare(r.At+r.Bytes, first+1) })
	for _, r := range runs[at:] {
		first, last := max(r.At, s.first), min(r.At+r.Bytes, s.last)
		if first >= last {
			break
		}
		parts = append(parts, Run{first, last - first, r.Times})
	}
	return parts
}

// outside are the runs' parts that are in none of some spans.
func outside(all []span, runs []Run) (parts []Run) {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	at := uint64(0) // up to where it is known
	gap := func(to uint64) {
		if to > at {
			parts = append(parts, within(runs, span{at, to})...)
		}
	}
	for _, s := range all {
		gap(s.first)
		at = max(at, s.last)
	}
	gap(1 << 63)
	return parts
}

package data

import (
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// Packs are sequences of several records each. Attention stays inside each record, so a pack is learned like
// its records one by one.
type Packs struct {
	records *Records
	order   []int32 // records, pack after pack
	first   []int32 // by pack, its first place in order; one more at the end
}

// PackRecords packs records in their order.
func PackRecords(r *Records, context int) *Packs {
	return packRecords(r, context, func(i int) int { return i })
}

// PackShuffled packs records in an order that the seed determines.
func PackShuffled(r *Records, context int, seed uint64) *Packs {
	key, n := rng.NewKey(seed, rng.StringStream("packing")), uint64(r.Len())
	return packRecords(r, context, func(i int) int { return int(rng.Permute(key, 0, uint64(i), n)) })
}

func packRecords(r *Records, context int, at func(i int) int) *Packs {
	p := &Packs{records: r, order: make([]int32, 0, r.Len())}
	add := func(pack []int32) {
		if pack != nil {
			p.first, p.order = append(p.first, int32(len(p.order))), append(p.order, pack...)
		}
	}
	packer := NewPacker[int32](context)
	for i := range r.Len() {
		record := at(i)
		add(packer.Add(int32(record), r.Positions(record)))
	}
	for pack := packer.Rest(); pack != nil; pack = packer.Rest() {
		add(pack)
	}
	p.first = append(p.first, int32(len(p.order)))
	return p
}

// Len returns the number of packs.
func (p *Packs) Len() int { return len(p.first) - 1 }

// Records returns the records of a pack.
func (p *Packs) Records(i int) []int32 { return p.order[p.first[i]:p.first[i+1]] }

// Positions returns the number of positions of a pack.
func (p *Packs) Positions(i int) (n int) {
	for _, record := range p.Records(i) {
		n += p.records.Positions(int(record))
	}
	return n
}

// Fill reads a pack: the tokens and targets of its records (see Records.Fill), one after the other.
func (p *Packs) Fill(i int, tokens, targets []int32) error {
	if n := p.Positions(i); len(tokens) != n || len(targets) != n {
		return fmt.Errorf("got room for %d tokens and %d targets of pack %d, which has %d positions", len(tokens), len(targets), i, n)
	}
	at := 0
	for _, record := range p.Records(i) {
		n := p.records.Positions(int(record))
		if err := p.records.Fill(int(record), tokens[at:at+n], targets[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// Starts fills in, for each position of a pack, the position at which its record starts.
func (p *Packs) Starts(i int, starts []int32) error {
	if n := p.Positions(i); len(starts) != n {
		return fmt.Errorf("got room for the starts of %d positions of pack %d, which has %d", len(starts), i, n)
	}
	at := 0
	for _, record := range p.Records(i) {
		n := p.records.Positions(int(record))
		for k := range n {
			starts[at+k] = int32(at)
		}
		at += n
	}
	return nil
}

package draw

import (
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/troupe-ml/troupe/scheduler"
)

// Bits of an action's flags.
const (
	flagCritical = 1 << iota
	flagPair     // runs as one with the next
	flagPart     // is a part of an action
)

// encode writes the magic "TRP1", the length of the header, the header, and arrays aligned to 4 bytes: for all
// actions, rank by rank, starts, ends, planned starts and planned ends (float32, ms), chunks and microbatches
// (int32), types and flags (uint8); of the gaps, starts and ends (float32), ranks, ranks waited for, chunks and
// microbatches waited for (int32; −1: none), causes and types (uint8). All little-endian. An exchange of tokens
// stands among the parts of its row.
func encode(s *scheduler.Step, h stepHeader, actual, planned *scheduler.Timeline, why *reasons) ([]byte, error) {
	n := 0
	for _, row := range s.Table.Ranks {
		h.Counts = append(h.Counts, len(row))
		n += len(row)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	for len(head)%4 != 0 {
		head = append(head, ' ')
	}
	b := make([]byte, 0, 8+len(head)+n*26+h.Gaps*26+16)
	b = append(b, "TRP1"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	b = append(b, head...)
	floats := func(rows [][]float64) {
		for _, row := range rows {
			for _, v := range row {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
			}
		}
	}
	floats(actual.Start)
	floats(actual.End)
	if planned != nil {
		floats(planned.Start)
		floats(planned.End)
	}
	for _, row := range s.Table.Ranks {
		for _, a := range row {
			b = binary.LittleEndian.AppendUint32(b, uint32(a.Chunk))
		}
	}
	for _, row := range s.Table.Ranks {
		for _, a := range row {
			b = binary.LittleEndian.AppendUint32(b, uint32(a.Microbatch))
		}
	}
	for _, row := range s.Table.Ranks {
		for _, a := range row {
			b = append(b, byte(a.Type))
		}
	}
	for r, row := range s.Table.Ranks {
		for i, a := range row {
			var flags byte
			if why.path[r][i] {
				flags |= flagCritical
			}
			if a.Overlap && a.Part == 0 {
				flags |= flagPair
			}
			if a.Part > 0 {
				flags |= flagPart
			}
			b = append(b, flags)
		}
	}
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	for _, g := range why.gaps {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(g.Start)))
	}
	for _, g := range why.gaps {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(g.End)))
	}
	for _, of := range []func(g gap) int32{
		func(g gap) int32 { return g.rank }, func(g gap) int32 { return int32(g.From) },
		func(g gap) int32 { return g.Needs.Chunk }, func(g gap) int32 { return g.Needs.Microbatch },
	} {
		for _, g := range why.gaps {
			b = binary.LittleEndian.AppendUint32(b, uint32(of(g)))
		}
	}
	for _, g := range why.gaps {
		b = append(b, byte(g.Cause))
	}
	for _, g := range why.gaps {
		b = append(b, byte(g.Needs.Type))
	}
	return b, nil
}

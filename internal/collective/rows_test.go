package collective_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// rowsCase is an exchange of rows among n members.
type rowsCase struct {
	n, experts, cols int // experts of each member
	counts           [][]int
	dtype            tensorops.DType
	table            []int32
}

// drawRows draws how many rows each member has for each expert: a member may have none, and an expert all.
func drawRows(t *rapid.T, n int) (c rowsCase) {
	c.n, c.experts = n, rapid.IntRange(1, 3).Draw(t, "experts of each")
	c.cols = rapid.SampledFrom([]int{1, 3, 700}).Draw(t, "columns")
	c.dtype = rapid.SampledFrom([]tensorops.DType{tensorops.Float32, tensorops.BFloat16}).Draw(t, "dtype")
	kind, all := rapid.SampledFrom([]string{"any", "one gets all", "none"}).Draw(t, "kind"), n*c.experts
	chosen := rapid.IntRange(0, all-1).Draw(t, "expert")
	for range n {
		row := make([]int, all)
		switch kind {
		case "any":
			for e := range row {
				row[e] = rapid.IntRange(0, 9).Draw(t, "rows")
			}
		case "one gets all":
			row[chosen] = rapid.IntRange(0, 30).Draw(t, "rows")
		}
		c.counts = append(c.counts, row)
	}
	c.table = c.tableOf()
	return c
}

func (c rowsCase) tableOf() (table []int32) {
	for _, row := range c.counts {
		at := int32(0)
		table = append(table, at)
		for _, k := range row {
			at += int32(k)
			table = append(table, at)
		}
	}
	return table
}

// ints makes a tensor of a table.
func (c rowsCase) ints(t fataler) tensorops.Tensor {
	x := tensor(t, tensorops.Int32, c.n, len(c.table)/c.n)
	for i, v := range c.table {
		binary.NativeEndian.PutUint32(tensorops.Bytes(x)[4*i:], uint32(v))
	}
	return x
}

// want returns what the experts of each member get: rows by expert, then by source.
func (c rowsCase) want(sources []tensorops.Tensor) (all [][]byte) {
	for member := range c.n {
		var out []byte
		for e := member * c.experts; e < (member+1)*c.experts; e++ {
			for s, x := range sources {
				row := c.table[s*(c.n*c.experts+1):]
				size := c.cols * c.dtype.Size()
				out = append(out, tensorops.Bytes(x)[int(row[e])*size:int(row[e+1])*size]...)
			}
		}
		all = append(all, out)
	}
	return all
}

// testRows exchanges rows and brings them back, several times in flight, and compares all bytes.
func testRows(t *testing.T, make maker) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "members")
		members, end := make(t, "ep of stage 1", n)
		defer end()
		random := rand.New(rand.NewPCG(1, uint64(n)))
		const spare = 2 // rows that belong to no expert
		type flight struct {
			rowsCase
			src, dst, back []tensorops.Tensor
			there, again   []*collective.Handle
		}
		var all []*flight
		for range rapid.IntRange(1, 3).Draw(t, "exchanges") {
			f := &flight{rowsCase: drawRows(t, n)}
			for rank, g := range members {
				held := 0
				for _, row := range f.counts {
					for e := rank * f.experts; e < (rank+1)*f.experts; e++ {
						held += row[e]
					}
				}
				sent := int(f.table[(rank+1)*(n*f.experts+1)-1])
				src, back := tensor(t, f.dtype, sent+spare, f.cols), tensor(t, f.dtype, sent+spare, f.cols)
				dst := tensor(t, f.dtype, held+spare, f.cols)
				fill(src, random)
				f.src, f.dst, f.back = append(f.src, src), append(f.dst, dst), append(f.back, back)
				table := f.ints(t)
				f.there = append(f.there, g.AllToAllV(dst, src, table, false))
				f.again = append(f.again, g.AllToAllV(back, dst, table, true))
			}
			all = append(all, f)
		}
		for _, f := range all {
			want := f.want(f.src)
			for rank := range members {
				if err := errors.Join(wait(t, f.there[rank]), wait(t, f.again[rank])); err != nil {
					t.Fatal(err)
				}
				size, unused := f.cols*f.dtype.Size(), spare*f.cols*f.dtype.Size()
				got, back, src := tensorops.Bytes(f.dst[rank]), tensorops.Bytes(f.back[rank]), tensorops.Bytes(f.src[rank])
				if !bytes.Equal(got[:len(got)-unused], want[rank]) || !bytes.Equal(got[len(got)-unused:], bytes.Repeat([]byte{0}, unused)) {
					t.Fatalf("%v: member %d has %d bytes that differ from %d, rows of %d", f.counts, rank, len(got), len(want[rank]), size)
				}
				if !bytes.Equal(back[:len(back)-unused], src[:len(src)-unused]) ||
					!bytes.Equal(back[len(back)-unused:], bytes.Repeat([]byte{0}, unused)) {
					t.Fatalf("%v: member %d gets other rows back", f.counts, rank)
				}
			}
		}
	})
}

func TestRows(t *testing.T)         { testRows(t, local) }
func TestExchangeRows(t *testing.T) { testRows(t, exchange) }

// TestRowsRefused: impossible tables, rows beyond the tensors, and tables that differ are errors, before anything is copied.
func TestRowsRefused(t *testing.T) {
	for name, make := range map[string]maker{"local": local, "exchange": exchange} {
		for _, c := range []struct {
			name       string
			mine, its  []int32
			rows, held int
			want       error
		}{
			{"descending", []int32{0, 2, 1, 0, 1, 1}, []int32{0, 2, 1, 0, 1, 1}, 4, 4, tensorops.ErrRoute},
			{"from 1", []int32{1, 2, 2, 0, 1, 1}, []int32{1, 2, 2, 0, 1, 1}, 4, 4, tensorops.ErrRoute},
			{"negative", []int32{0, -2, 2, 0, 1, 1}, []int32{0, -2, 2, 0, 1, 1}, 4, 4, tensorops.ErrRoute},
			{"too many of its own", []int32{0, 2, 5, 0, 1, 2}, []int32{0, 2, 5, 0, 1, 2}, 4, 9, tensorops.ErrRoute},
			{"too many for its experts", []int32{0, 2, 4, 0, 3, 4}, []int32{0, 2, 4, 0, 3, 4}, 4, 4, tensorops.ErrRoute},
			{"other tables", []int32{0, 2, 3, 0, 1, 2}, []int32{0, 1, 3, 0, 1, 2}, 4, 9, collective.ErrMismatch},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				members, end := make(t, "ep", 2)
				defer end()
				var all []*collective.Handle
				for rank, table := range [][]int32{c.mine, c.its} {
					if errors.Is(c.want, tensorops.ErrRoute) && rank > 0 {
						break
					}
					x := rowsCase{n: 2, table: table}.ints(t)
					dst, src := tensor(t, tensorops.Float32, c.held, 3), tensor(t, tensorops.Float32, c.rows, 3)
					all = append(all, members[rank].AllToAllV(dst, src, x, false))
				}
				for _, h := range all {
					if err := wait(t, h); !errors.Is(err, c.want) {
						t.Errorf("error %v, want %v", err, c.want)
					}
				}
			})
		}
	}
}

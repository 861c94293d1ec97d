package quant_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// published are the values of NF4 as appendix E of QLoRA and bitsandbytes print them.
var published = []float64{
	-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
	-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434,
	0.5626170039176941, 0.7229568362236023, 1.0,
}

func TestNF4Values(t *testing.T) {
	for i, v := range published {
		if float64(quant.NF4Values[i]) != v {
			t.Errorf("value %d is %v, published is %v", i, quant.NF4Values[i], v)
		}
		if i == 0 {
			continue
		}
		// A number halfway between two values has the code of the lower one, one above it that of the upper.
		half := float32((published[i-1] + v) / 2)
		for _, c := range []struct {
			x    float32
			want int
		}{{half, i - 1}, {math.Nextafter32(half, 2), i}, {float32(v), i}} {
			row := make([]byte, quant.NF4.RowBytes(2))
			quant.NF4.Encode(row, []float32{c.x, 1})
			if got := int(row[0] >> 4); got != c.want {
				t.Errorf("%v has code %d, want %d", c.x, got, c.want)
			}
		}
	}
}

// TestLayout: bytes of a row that a reader of another program can compute by hand.
func TestLayout(t *testing.T) {
	x := make([]float32, 66)
	x[0], x[1], x[63], x[64], x[65] = 2, -1, 1, -0.5, 0.25
	row := make([]byte, quant.NF4.RowBytes(len(x)))
	quant.NF4.Encode(row, x)
	// 2/2 is value 15, −1/2 is nearest to value 2 (−0.525), 1/2 to value 12 or 13 (0.4407, 0.5626): 12.
	want := bytes.Repeat([]byte{0x77}, 72)
	want[0], want[31], want[32] = 0xf2, 0x7c, 0x0c
	copy(want[64:], []byte{0, 0, 0, 0x40, 0, 0, 0, 0x3f}) // 2 and 0.5
	if !bytes.Equal(row, want) {
		t.Errorf("NF4:\n%x want\n%x", row, want)
	}
	row = make([]byte, quant.Int8.RowBytes(len(x)))
	quant.Int8.Encode(row, x)
	want = make([]byte, 136)
	want[0], want[1], want[63], want[64], want[65] = 127, 0xc0, 64, 0x81, 64 // −63.5 and 63.5 to the even −64 and 64
	if !bytes.Equal(row[:128], want[:128]) {
		t.Errorf("int8:\n%x want\n%x", row[:128], want[:128])
	}
	if _, scales := quant.Int8.Parts(row, len(x), 0); scales[0] != float32(2)/127 || scales[1] != float32(0.5)/127 {
		t.Errorf("scales %v", scales)
	}
}

// TestNumbers: any part of a row is what the whole row has there, within half a step of what was stored.
func TestNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range []quant.Format{quant.Int8, quant.NF4} {
		for _, cols := range []int{1, 5, 63, 64, 65, 130, 300} {
			const rows = 3
			m := quant.Matrix{Format: f, Data: make([]byte, rows*f.RowBytes(cols)), Cols: cols}
			x, all := make([]float32, rows*cols), make([]float32, rows*cols)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			for i := range rows {
				f.Encode(m.Row(i), x[i*cols:][:cols])
				m.Numbers(all[i*cols:][:cols], i*cols, quant.Format.Decode)
			}
			for i, v := range all {
				var most float64
				for _, u := range x[i/cols*cols+i%cols/quant.Block*quant.Block : min(i/cols*cols+i%cols/quant.Block*quant.Block+quant.Block,
					(i/cols+1)*cols)] {
					most = max(most, math.Abs(float64(u)))
				}
				step := most / 254 * 1.0001
				if f == quant.NF4 {
					step = most * 0.152 // half of the largest distance between values, from −1 to −0.696
				}
				if d := math.Abs(float64(v - x[i])); d > step {
					t.Fatalf("format %d, %d columns: number %d is %v, stored was %v", f, cols, i, v, x[i])
				}
			}
			for range 100 {
				row, from := r.IntN(rows), r.IntN(cols)
				part := make([]float32, 1+r.IntN(cols-from))
				m.Numbers(part, row*cols+from, quant.Format.Decode)
				for i, v := range part {
					if v != all[row*cols+from+i] {
						t.Fatalf("format %d, %d columns: number %d of row %d is %v in a part, %v in the row", f, cols, from+i, row, v, all[row*cols+from+i])
					}
				}
			}
		}
	}
}

// TestUnusual: blocks of zeros stay zeros, and an infinity or a NaN damages its block alone.
func TestUnusual(t *testing.T) {
	for _, f := range []quant.Format{quant.Int8, quant.NF4} {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			x := make([]float32, 3*quant.Block)
			x[70], x[150] = bad, 1
			m := quant.Matrix{Format: f, Data: make([]byte, f.RowBytes(len(x))), Cols: len(x)}
			f.Encode(m.Data, x)
			y := make([]float32, len(x))
			m.Numbers(y, 0, quant.Format.Decode)
			for i, v := range y {
				if damaged := i/quant.Block == 1; damaged != (v != v) || !damaged && v != x[i] {
					t.Fatalf("format %d with %v: number %d is %v", f, bad, i, v)
				}
			}
		}
	}
}

package samples

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkOpen reads 2,000 samples of 784 numbers and a label.
func BenchmarkOpen(b *testing.B) {
	const n, size = 2000, 784
	var csv, jsonl strings.Builder
	pixels, ids := make([]uint8, n*size), make([]uint8, n)
	for i := range n {
		ids[i] = uint8(i % 10)
		row := make([]string, size)
		for k := range row {
			v := uint8(i * k)
			pixels[i*size+k], row[k] = v, fmt.Sprint(v)
		}
		text := strings.Join(row, ",")
		fmt.Fprintf(&csv, "%s,%d\n", text, i%10)
		fmt.Fprintf(&jsonl, `{"x":[%s],"y":%d}`+"\n", text, i%10)
	}
	for _, c := range []struct {
		o             Options
		files, labels string
	}{
		{Options{Format: "csv", Label: "785"}, csv.String(), ""},
		{Options{Format: "jsonl", Label: "y"}, jsonl.String(), ""},
		{Options{Format: "idx"}, idxOf(8, []uint32{n, 28, 28}, pixels), idxOf(8, []uint32{n}, ids)},
	} {
		c.o.Files = []string{write(b, "a", c.files)}
		if c.labels != "" {
			c.o.Labels = []string{write(b, "b", c.labels)}
		}
		b.Run(c.o.Format, func(b *testing.B) {
			b.SetBytes(int64(len(c.files)))
			for b.Loop() {
				if _, err := Open(c.o); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
		d, err := Open(c.o)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.o.Format+"-microbatch-of-32", func(b *testing.B) {
			source, err := NewSource(d, 1)
			if err != nil {
				b.Fatal(err)
			}
			batch, number := make([]Sample, 32), int64(0)
			for b.Loop() {
				for i := range batch {
					if batch[i], err = source.Sample(number); err != nil {
						b.Fatal(err)
					}
					number++
				}
				if _, err := Batch(d, batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

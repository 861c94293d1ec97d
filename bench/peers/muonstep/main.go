// Command muonstep reads matrices and gradients from its input and prints the matrices after updates by Muon, for muon.py.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// matrix is a matrix, stored as [out, in], and the updates of it.
type matrix struct {
	Out, In                   int
	Scale                     string
	LR, Momentum, WeightDecay float64
	BF16                      bool
	W                         []float32
	Grads                     [][]float32
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var all []matrix
	if err := json.NewDecoder(in).Decode(&all); err != nil {
		return err
	}
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	s := dev.NewStream("muon")
	defer s.Close()
	results := make([][]float32, len(all))
	for i, m := range all {
		if results[i], err = m.update(s); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(results)
}

func (m matrix) update(s tensorops.Stream) ([]float32, error) {
	o := tensorops.MuonOpts{LR: m.LR, Momentum: m.Momentum, WeightDecay: m.WeightDecay, GradScale: 1, Rows: m.Out, Cols: m.In, Blocks: 1,
		BF16: m.BF16, Factor: tensorops.MuonMatchRMS(m.Out, m.In)}
	if m.Scale == "original" {
		o.Factor = tensorops.MuonOriginal(m.Out, m.In)
	}
	l := s.NewList()
	w, b, g := l.Alloc(tensorops.Float32, m.Out, m.In), l.Alloc(tensorops.Float32, m.Out, m.In), l.Alloc(tensorops.Float32, m.Out, m.In)
	l.Upload(w, tensorops.HostBytes(m.W))
	l.Fill(b, 0)
	for _, grad := range m.Grads {
		l.Upload(g, tensorops.HostBytes(grad))
		l.Muon(w, b, g, o)
	}
	result := make([]float32, len(m.W))
	l.Fetch(tensorops.HostBytes(result), w)
	for _, t := range []tensorops.Tensor{w, b, g} {
		l.Free(t)
	}
	return result, tensorops.Run(s, l)
}

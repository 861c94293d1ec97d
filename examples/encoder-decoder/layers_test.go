package main

import (
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/stages/layertest"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestLayers: the layers' gradients are their slopes, among other things.
func TestLayers(t *testing.T) {
	const width = 6
	rows := func(length int) layertest.Tensor {
		return layertest.Tensor{Shape: []int{layertest.B, length, width}}
	}
	ids := layertest.Tensor{Name: "source", Shape: []int{layertest.B, 5}, DType: tensorops.Int32, Classes: 4}
	ids.Fill = func(_ int, a tensorops.Array) {
		for i := range a.Int {
			if i%5 >= 3 && i%2 == 0 {
				a.Int[i] = padding
			}
		}
	}
	for name, c := range map[string]struct {
		layer  stages.Layer
		inputs []layertest.Tensor
	}{
		"embed":          {&embed{"source", 4, 7, width}, nil},
		"feed":           {&feed{width, 8}, []layertest.Tensor{rows(3)}},
		"attend":         {&attend{width: width, heads: 2, keys: "source"}, []layertest.Tensor{rows(5)}},
		"attend, causal": {&attend{width: width, heads: 3}, []layertest.Tensor{rows(4)}},
		"attend, across": {&attend{width: width, heads: 1, keys: "source"}, []layertest.Tensor{rows(3), rows(5)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := layertest.Options{Inputs: c.inputs}
			if f, ok := c.layer.(stages.Fields); ok && len(f.Fields()) > 0 {
				o.Fields = []layertest.Tensor{ids}
			}
			layertest.Check(t, c.layer, o)
		})
	}
}

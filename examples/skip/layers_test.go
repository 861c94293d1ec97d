package main

import (
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/stages/layertest"
)

// TestLayers: the layers' gradients are their slopes, among other things.
func TestLayers(t *testing.T) {
	image := func(side, channels int) layertest.Tensor {
		return layertest.Tensor{Shape: []int{layertest.B, side, side, channels}}
	}
	for name, c := range map[string]struct {
		layer  stages.Layer
		inputs []layertest.Tensor
	}{
		"conv":            {&conv{side: 4, stride: 1, in: []int{2}, out: 3}, []layertest.Tensor{image(4, 2)}},
		"conv, stride 2":  {&conv{side: 2, stride: 2, in: []int{3}, out: 2}, []layertest.Tensor{image(4, 3)}},
		"conv of two":     {&conv{side: 2, stride: 1, in: []int{1, 3}, out: 2}, []layertest.Tensor{image(2, 1), image(2, 3)}},
		"conv of a pixel": {&conv{side: 1, stride: 1, in: []int{2}, out: 2}, []layertest.Tensor{image(1, 2)}},
		"twice":           {&twice{side: 4}, []layertest.Tensor{image(2, 3)}},
		"add":             {add{}, []layertest.Tensor{image(2, 3), image(2, 3)}},
	} {
		t.Run(name, func(t *testing.T) {
			layertest.Check(t, c.layer, layertest.Options{Inputs: c.inputs})
		})
	}
}

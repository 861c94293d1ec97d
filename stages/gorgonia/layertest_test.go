package gorgonia_test

import (
	"testing"

	"github.com/troupe-ml/troupe/stages/layertest"
)

// TestLayer: graphs as layers keep to all that layers must.
func TestLayer(t *testing.T) {
	rows := []layertest.Tensor{{Shape: []int{layertest.B, 6}}}
	layertest.Check(t, dense(6, 5), layertest.Options{Inputs: rows})
	layertest.Check(t, halves(), layertest.Options{Inputs: rows, Fields: []layertest.Tensor{{Name: "z", Shape: []int{layertest.B, 6}}}})
}

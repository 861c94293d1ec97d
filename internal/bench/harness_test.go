package bench

import (
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// Every element of a tensor is drawn, whatever its sizes.
func TestFloats(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newHarness(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for _, dims := range [][]int{{1}, {3, 5, 7}, {noiseLen}, {2, noiseLen}, {3, noiseLen/2 + 9}} {
		x, err := b.numbers(tensorops.Float32, dims...)
		if err != nil {
			t.Fatal(err)
		}
		noise := tensorops.Elements[float32](b.noise)
		for i, v := range tensorops.Elements[float32](x) {
			if v != noise[i%noiseLen] {
				t.Errorf("%v: element %d is %g, want %g", dims, i, v, noise[i%noiseLen])
				break
			}
		}
		x.Release()
	}
}

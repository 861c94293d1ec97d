package collective

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestPast: what goes past the caches has the same bits, also in place and where it begins anywhere in a line of a cache.
func TestPast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]tensorops.DType{tensorops.Float32, tensorops.BFloat16, tensorops.Int32, tensorops.Float64}).Draw(t, "dtype")
		how := rapid.SampledFrom([]tensorops.Reduction{tensorops.Sum, tensorops.Max, tensorops.Min, tensorops.Product, tensorops.Mean}).Draw(t,
			"how")
		if d == tensorops.Int32 && how == tensorops.Mean {
			t.Skip("there is no mean of integers")
		}
		n := rapid.IntRange(1, 5).Draw(t, "members")
		length := d.Size() * rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(2*blockLen-20, 2*blockLen+20)).Draw(t, "length")
		at := 8 * rapid.IntRange(0, 7).Draw(t, "8 bytes into a line")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		aligned := func() []byte {
			b := tensorops.HostBytes(make([]float64, (at+length)/8+9))
			return b[at:][:length:length]
		}
		src := make([][]byte, n)
		for i := range src {
			src[i] = aligned()
			for k := range src[i] {
				src[i][k] = byte(random.Uint32())
			}
		}
		var s scratch
		want, got := aligned(), aligned()
		s.reduce(d, how, want, src, false)
		s.reduce(d, how, got, src, true)
		if !bytes.Equal(got, want) {
			t.Fatal("other bits past the caches")
		}
		own := rapid.IntRange(0, n-1).Draw(t, "in place of")
		s.reduce(d, how, src[own], src, true)
		if !bytes.Equal(src[own], want) {
			t.Fatal("other bits in place")
		}
	})
}

package cpu_test

import (
	"bytes"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestLinearAttentionBits: the float32 bits of linear attention are the same on every path but "go", and on any
// number of threads.
func TestLinearAttentionBits(t *testing.T) {
	var want []byte
	var first string
	for i, path := range paths() {
		if path == "go" {
			continue
		}
		got := linearAttention(t, open(t, 1+i%2*2, path))
		if want == nil {
			want, first = got, path
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s has other bits than %s", path, first)
		}
	}
}

// linearAttention returns what the operations make of inputs that are always the same.
func linearAttention(t *testing.T, dev tensorops.Device) []byte {
	t.Helper()
	const batch, positions, keyHeads, heads, dk, dv = 2, 131, 1, 2, 24, 40
	const rows, keys, values = batch * positions, keyHeads * dk, heads * dv
	s := dev.NewStream("linear attention")
	defer s.Close()
	l, inputs := s.NewList(), uint64(0)
	var owned, results []tensorops.Tensor
	of := func(dims ...int) tensorops.Tensor {
		x := l.Alloc(tensorops.Float32, dims...)
		numbers := make([]float32, x.Len())
		inputs++
		rng.Normal(numbers, rng.NewKey(1, inputs), 0, 0, 1)
		l.Upload(x, tensorops.HostBytes(numbers))
		owned = append(owned, x)
		return x
	}
	result := func(dims ...int) tensorops.Tensor {
		x := of(dims...)
		results = append(results, x)
		return x
	}
	x, weight, a, b, aLog, dtBias := of(rows, 2*keys+values), of(2*keys+values, 4), of(rows, heads), of(rows, heads), of(heads), of(heads)
	conv, delta := tensorops.ConvOpts{Batch: batch}, tensorops.DeltaOpts{Batch: batch, KeyHeads: keyHeads, ValueHeads: heads, Eps: 1e-6}
	mixed, gates, o, state := result(rows, 2*keys+values), result(rows, 2*heads), result(rows, values), result(batch, heads, dk, dv)
	split := func(t tensorops.Tensor) (q, k, v tensorops.Tensor) {
		return t.Columns(0, keys), t.Columns(keys, 2*keys), t.Columns(2*keys, t.Cols())
	}
	l.CausalConv(mixed, x, weight, tensorops.Tensor{}, conv)
	l.DeltaGates(gates, a, b, aLog, dtBias, tensorops.DeltaGatesOpts{})
	q, k, v := split(mixed)
	l.GatedDelta(o, q, k, v, gates, state, delta)
	dmixed, dgates, dx, dweight := result(rows, 2*keys+values), result(rows, 2*heads), result(rows, 2*keys+values), result(2*keys+values, 4)
	da, db, daLog, ddtBias := result(rows, heads), result(rows, heads), result(heads), result(heads)
	dq, dkeys, dvalues := split(dmixed)
	l.GatedDeltaGrad(dq, dkeys, dvalues, dgates, of(rows, values), q, k, v, gates, delta)
	l.CausalConvGrad(dx, dmixed, x, weight, conv)
	l.CausalConvWeightGrad(dweight, dmixed, x, weight, conv)
	l.DeltaGatesGrad(da, db, dgates, gates, a, aLog, dtBias)
	l.DeltaGatesWeightGrad(daLog, ddtBias, dgates, gates, a, aLog, dtBias)
	var all [][]byte
	for _, r := range results {
		host := tensorops.HostBytes(make([]float32, r.Len()))
		l.Fetch(host, r)
		all = append(all, host)
	}
	for _, x := range owned {
		l.Free(x)
	}
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	return bytes.Join(all, nil)
}

package collective_test

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// values are a tensor's numbers: bfloat16 as float32.
type values struct {
	f []float32
	d []float64
	i []int32
}

func read(t tensorops.Tensor) (v values) {
	b := tensorops.Bytes(t)
	for k := range t.Len() {
		switch t.DType() {
		case tensorops.Float32:
			v.f = append(v.f, math.Float32frombits(binary.NativeEndian.Uint32(b[4*k:])))
		case tensorops.BFloat16:
			v.f = append(v.f, math.Float32frombits(uint32(binary.NativeEndian.Uint16(b[2*k:]))<<16))
		case tensorops.Float64:
			v.d = append(v.d, math.Float64frombits(binary.NativeEndian.Uint64(b[8*k:])))
		case tensorops.Int32:
			v.i = append(v.i, int32(binary.NativeEndian.Uint32(b[4*k:])))
		}
	}
	return v
}

// bytesOf is how numbers of a type lie in memory.
func (v values) bytesOf(d tensorops.DType) (b []byte) {
	for _, x := range v.f {
		if d == tensorops.BFloat16 {
			b = binary.NativeEndian.AppendUint16(b, tensorops.ToBFloat16(x))
		} else {
			b = binary.NativeEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	for _, x := range v.d {
		b = binary.NativeEndian.AppendUint64(b, math.Float64bits(x))
	}
	for _, x := range v.i {
		b = binary.NativeEndian.AppendUint32(b, uint32(x))
	}
	return b
}

func (v values) pick(list []int) (out values) {
	for _, k := range list {
		switch {
		case v.f != nil:
			out.f = append(out.f, v.f[k])
		case v.d != nil:
			out.d = append(out.d, v.d[k])
		default:
			out.i = append(out.i, v.i[k])
		}
	}
	return out
}

// reduced is each element reduced from member 0 on.
func reduced(how tensorops.Reduction, all []values) values {
	out := values{f: column(how, all, func(v values) []float32 { return v.f }), d: column(how, all, func(v values) []float64 { return v.d }),
		i: column(how, all, func(v values) []int32 { return v.i })}
	return out
}

func column[E float32 | float64 | int32](how tensorops.Reduction, all []values, of func(values) []E) []E {
	out := append([]E(nil), of(all[0])...)
	for k := range out {
		for _, v := range all[1:] {
			x := of(v)[k]
			switch how {
			case tensorops.Sum, tensorops.Mean:
				out[k] = out[k] + x
			case tensorops.Product:
				out[k] = out[k] * x
			case tensorops.Max:
				if x > out[k] || x != x {
					out[k] = x
				}
			case tensorops.Min:
				if x < out[k] || x != x {
					out[k] = x
				}
			}
		}
		if how == tensorops.Mean {
			out[k] = out[k] / E(len(all))
		}
	}
	return out
}

// places lists, in order, where in a whole of the given shape the part of a rank lies, along a dimension.
func places(shape []int, dim, n, rank int) (list []int) {
	total := 1
	for _, d := range shape {
		total *= d
	}
	for k := range total {
		index, rest := make([]int, len(shape)), k
		for i := len(shape) - 1; i >= 0; i-- {
			index[i], rest = rest%shape[i], rest/shape[i]
		}
		if index[dim]/(shape[dim]/n) == rank {
			list = append(list, k)
		}
	}
	return list
}

// reference is what each member's destination is to hold: the members' sources are all, of the shapes that
// args has.
func reference(a tensorops.CollectiveArgs, all []values) (results [][]byte) {
	n, d := len(all), a.Dst.DType()
	for rank := range n {
		var v values
		switch a.What {
		case tensorops.AllReduce:
			v = reduced(a.How, all)
		case tensorops.ReduceScatter:
			v = reduced(a.How, all).pick(places(a.Src.Shape(), a.Dim, n, rank))
		case tensorops.AllGather:
			whole := make([]byte, len(tensorops.Bytes(a.Dst)))
			for from, part := range all {
				b := part.bytesOf(d)
				for k, at := range places(a.Dst.Shape(), a.Dim, n, from) {
					copy(whole[at*d.Size():], b[k*d.Size():][:d.Size()])
				}
			}
			results = append(results, whole)
			continue
		case tensorops.Broadcast:
			v = all[a.Root]
		case tensorops.AllToAll:
			var b []byte
			for _, from := range all {
				b = append(b, from.pick(places(a.Src.Shape(), 0, n, rank)).bytesOf(d)...)
			}
			results = append(results, b)
			continue
		case tensorops.RingForward:
			v = all[(rank+n-1)%n]
		default:
			panic(fmt.Sprint("no reference of ", a.What))
		}
		results = append(results, v.bytesOf(d))
	}
	return results
}

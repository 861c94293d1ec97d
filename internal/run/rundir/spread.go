package rundir

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// spread is a tensor over which the elements of several parameters are spread. The first dimension of the tensor is also that of the
// parameters, and it is written one index after the other: so no more than a matrix is in memory twice.
type spread struct {
	shape []int
	parts []spreadPart
}

type spreadPart struct {
	of     safetensors.Tensor
	stored stages.StoredPart
}

func (s *spread) write(w io.Writer) error {
	outer, inner := s.shape[0], 1
	for _, d := range s.shape[1:] {
		inner *= d
	}
	data := make([][]byte, len(s.parts))
	width := 0
	for i, p := range s.parts {
		data[i] = p.of.Data
		if p.of.Stream != nil {
			var all bytes.Buffer
			if err := p.of.Stream(&all); err != nil {
				return err
			}
			data[i] = all.Bytes()
		}
		own := len(data[i]) / max(p.stored.Len, 1)
		if width = max(width, own); own != width || len(data[i]) != width*p.stored.Len {
			return fmt.Errorf("%s: a part of %d elements has %d bytes", p.stored.Name, p.stored.Len, len(data[i]))
		}
	}
	matrix := make([]byte, inner*width)
	for e := range outer {
		for i, p := range s.parts {
			n := p.stored.Len / outer
			p.stored.Runs(e*n, (e+1)*n, func(param, at, n, step int) {
				scatter(matrix[(at-e*inner)*width:], data[i][param*width:][:n*width], width, step)
			})
		}
		if _, err := w.Write(matrix); err != nil {
			return err
		}
	}
	return nil
}

// scatter copies elements of width bytes to places that are step elements apart.
func scatter(to, from []byte, width, step int) {
	if step == 1 {
		copy(to, from)
		return
	}
	step *= width
	switch width {
	case 4:
		for i := 0; i < len(from); i += 4 {
			binary.NativeEndian.PutUint32(to[i/4*step:], binary.NativeEndian.Uint32(from[i:]))
		}
	case 2:
		for i := 0; i < len(from); i += 2 {
			binary.NativeEndian.PutUint16(to[i/2*step:], binary.NativeEndian.Uint16(from[i:]))
		}
	default:
		for i, part := range slices.Collect(slices.Chunk(from, width)) {
			copy(to[i*step:], part)
		}
	}
}

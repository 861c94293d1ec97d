package plan

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// partsOf returns the tensors of a checkpoint that have a parameter, or a part of its optimizer state: the usual ones or, if another
// program wrote the file, those of that program. If there are none, it returns the usual ones.
func partsOf(c *checkpoint.Checkpoint, p *stages.Param, part string) []stages.StoredPart {
	usual := p.StoredParts()
	if part != "" || p.Other == nil {
		return usual
	}
	if _, _, err := named(c, c.Model(), usual[0].Name); err == nil {
		return usual
	}
	name := p.Other.Name
	if p.Other.MXFP4 {
		name, _, _, _ = p.Other.MXFP4Tensors()
	}
	if _, _, err := named(c, c.Model(), name); err != nil {
		return usual
	}
	return []stages.StoredPart{*p.Other}
}

// Usual reports whether a checkpoint has a parameter in the tensors that Troupe writes.
func Usual(c *checkpoint.Checkpoint, p *stages.Param) bool {
	part := partsOf(c, p, "")[0]
	return !part.MXFP4 && part.Name == p.StoredParts()[0].Name
}

// gather reads what a rank has of a parameter whose elements are spread over a tensor. It reads some columns of several rows at a time:
// where the tensor has the matrix by its columns, one cache line holds numbers of all these rows.
func gather(from *checkpoint.Tensors, name string, p *stages.Param, stored stages.StoredPart, dst []float32) (err error) {
	const rows, columns = 16, 64
	type run struct {
		to       []float32
		at, step int
	}
	data, err := from.Bytes(name)
	if err != nil {
		return err
	}
	info, _ := from.Info(name)
	var runs []run
	flush := func() {
		for at, more := 0, true; more; at += columns {
			more = false
			for _, r := range runs {
				if at >= len(r.to) || err != nil {
					continue
				}
				more = true
				err = safetensors.DecodeEvery(r.to[at:min(at+columns, len(r.to))], info.DType, data, r.at+at*r.step, r.step)
			}
		}
		runs = runs[:0]
	}
	eachRange(p, stored, dst, func(to []float32, first int) {
		stored.Runs(first, first+len(to), func(param, at, n, step int) {
			runs = append(runs, run{to[param-first:][:n], at, step})
			if len(runs) == rows {
				flush()
			}
		})
	})
	flush()
	if err != nil {
		return fmt.Errorf("%s: tensor %q: %w", from.Path(name), name, err)
	}
	return nil
}

// findMXFP4 returns the names of the tensors of codes and of scales of a weight. They must have the model's shape.
func findMXFP4(c *checkpoint.Checkpoint, stored stages.StoredPart) (codes, scales string, err error) {
	last := stored.Shape[len(stored.Shape)-1]
	codes, scales, codesShape, scalesShape := stored.MXFP4Tensors()
	var found [2]string
	for i, one := range []struct {
		name  string
		shape []int
	}{{codes, codesShape}, {scales, scalesShape}} {
		info, name, err := named(c, c.Model(), one.name)
		switch path := c.Model().Path(name); {
		case err != nil:
			return "", "", err
		case last%stages.MXBlock != 0:
			return "", "", fmt.Errorf("%s: tensor %q has blocks of %d numbers, but the rows of the model's matrices have %d", path, name,
				stages.MXBlock, last)
		case info.DType != "U8":
			return "", "", fmt.Errorf("%s: tensor %q has type %s; MXFP4 has U8", path, name, info.DType)
		case !slices.Equal(info.Shape, one.shape):
			return "", "", fmt.Errorf("%s: tensor %q has shape %d, but the model needs %d", path, name, info.Shape, one.shape)
		}
		found[i] = name
	}
	return found[0], found[1], nil
}

// readMXFP4 reads what a rank has of a weight in MXFP4. A row of the parameter is one of the tensor.
func readMXFP4(c *checkpoint.Checkpoint, p *stages.Param, stored stages.StoredPart, dst []float32) error {
	codes, scales, err := findMXFP4(c, stored)
	if err != nil {
		return err
	}
	from := c.Model()
	defer from.Forget(codes)
	defer from.Forget(scales)
	of, err := from.Bytes(codes)
	if err != nil {
		return err
	}
	factors, err := from.Bytes(scales)
	if err != nil {
		return err
	}
	eachRange(p, stored, dst, func(to []float32, first int) {
		stored.Runs(first, first+len(to), func(param, at, n, _ int) {
			if err == nil {
				err = safetensors.DecodeMXFP4(to[param-first:][:n], of, factors, at)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("%s: tensor %q: %w", from.Path(codes), codes, err)
	}
	return nil
}

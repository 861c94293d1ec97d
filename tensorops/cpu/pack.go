package cpu

// pack lays out a block of depth × width in strips of the given width: strip s
// holds, for each k in turn, the elements (k, s·strip … s·strip+strip−1), with
// zeros past the border. Packing costs as much as some forty multiply-adds an
// element, so the common cases have loops of their own.
func pack(dst []float32, m matrix, depth, width, strip int) []float32 {
	for j0 := 0; j0 < width; j0 += strip {
		out := dst[j0*depth:][:strip*depth]
		w := min(strip, width-j0)
		if m.col == 1 {
			packAlong(out, m.data[j0:], m.row, depth, w, strip)
		} else {
			packAcross(out, m.data[j0*m.col:], m.row, m.col, depth, w, strip)
		}
	}
	return dst
}

// packAlong packs a strip whose rows are contiguous in memory.
func packAlong(out, src []float32, row, depth, w, strip int) {
	switch {
	case w == 16 && strip == 16:
		for k := range depth {
			*(*[16]float32)(out[k*16:]) = *(*[16]float32)(src[k*row:])
		}
	case w == 6 && strip == 6:
		for k := range depth {
			*(*[6]float32)(out[k*6:]) = *(*[6]float32)(src[k*row:])
		}
	default:
		for k := range depth {
			o := out[k*strip:][:strip]
			copy(o, src[k*row:][:w])
			clear(o[w:])
		}
	}
}

// packAcross packs a strip whose columns lie col apart, four at a time where
// they are contiguous.
func packAcross(out, src []float32, row, col, depth, w, strip int) {
	j := 0
	if row == 1 {
		for ; j+4 <= w; j += 4 {
			s0, s1 := src[j*col:][:depth], src[(j+1)*col:][:depth]
			s2, s3 := src[(j+2)*col:][:depth], src[(j+3)*col:][:depth]
			o := out[j:]
			for k := range s0 {
				q := (*[4]float32)(o[k*strip:])
				q[0], q[1], q[2], q[3] = s0[k], s1[k], s2[k], s3[k]
			}
		}
	}
	for ; j < w; j++ {
		for k := range depth {
			out[k*strip+j] = src[k*row+j*col]
		}
	}
	for ; j < strip; j++ {
		for k := range depth {
			out[k*strip+j] = 0
		}
	}
}

package collective

// region is bytes that lie in runs of one length, at equal distances: a part of a tensor along some dimension.
type region struct {
	mem    []byte // from the first run on
	run    int    // bytes of a run
	stride int    // bytes from one run to the next
	length int    // bytes of all runs
	// pieces are runs of several lengths instead, at any distances.
	pieces []stretch
}

// stretch is a run of a region: n bytes from byte at of its memory on, the region's bytes from first on.
type stretch struct{ at, n, first int }

// add appends a run. One that follows the last in memory becomes part of it.
func (r *region) add(at, n int) {
	if last := len(r.pieces) - 1; last >= 0 && r.pieces[last].at+r.pieces[last].n == at {
		r.pieces[last].n += n
	} else {
		r.pieces = append(r.pieces, stretch{at, n, r.length})
	}
	r.length += n
}

func dense(b []byte) region { return region{mem: b, run: len(b), stride: len(b), length: len(b)} }

// only returns a region of at most one run of add as that run.
func (r region) only() region {
	if len(r.pieces) == 0 {
		return region{}
	}
	return dense(r.mem[r.pieces[0].at:][:r.length])
}

// strided reports whether the runs don't follow each other.
func (r region) strided() bool { return len(r.pieces) > 0 || r.stride != r.run && r.length > r.run }

// each calls f for the memory of bytes lo to hi, run by run; at counts from lo.
func (r region) each(lo, hi int, f func(at int, b []byte)) {
	if !r.strided() {
		if lo < hi {
			f(0, r.mem[lo:hi])
		}
		return
	}
	if len(r.pieces) > 0 {
		for _, s := range r.pieces {
			if from, to := max(lo, s.first), min(hi, s.first+s.n); from < to {
				f(from-lo, r.mem[s.at+from-s.first:][:to-from])
			}
		}
		return
	}
	for at := lo; at < hi; {
		within := at % r.run
		n := min(hi-at, r.run-within)
		f(at-lo, r.mem[at/r.run*r.stride+within:][:n])
		at += n
	}
}

// pack copies bytes lo to hi to b, unpack from b.
func (r region) pack(b []byte, lo, hi int) {
	r.each(lo, hi, func(at int, m []byte) { copy(b[at:], m) })
}
func (r region) unpack(b []byte, lo, hi int) {
	r.each(lo, hi, func(at int, m []byte) { copy(m, b[at:]) })
}

// leastRun is the length from which runs are sent as they lie, instead of one copy of all.
const leastRun = 2048

// parts is the memory of bytes lo to hi cut where another end's runs end too: every run bytes from the region's
// beginning; 0: nowhere.
func (r region) parts(lo, hi, run int) (list [][]byte) {
	r.each(lo, hi, func(at int, b []byte) {
		for at += lo; run > 0 && len(b) > run-at%run; {
			n := run - at%run
			list = append(list, b[:n])
			b, at = b[n:], at+n
		}
		list = append(list, b)
	})
	return list
}

// wireLens are the lengths of the parts of bytes lo to hi that are cut every run bytes.
func wireLens(lo, hi, run int) (list []int) {
	for run > 0 && hi-lo > run-lo%run {
		n := run - lo%run
		list = append(list, n)
		lo += n
	}
	if hi > lo {
		list = append(list, hi-lo)
	}
	return list
}

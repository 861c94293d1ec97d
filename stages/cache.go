package stages

import "github.com/troupe-ml/troupe/tensorops"

// keysValues holds the keys and values of a sequence in one decoder layer, rotated to their positions. Position p is in row p.
// A layer with a window that is shorter than the sequence keeps only the window's positions: position p is in row
// p mod window.
type keysValues struct {
	keys, values tensorops.Tensor // [rows, kvWidth]
	ring         bool
}

func (b *attentionMixer) newCache(l *tensorops.List, dtype tensorops.DType, room int) mixerCache {
	if b.spec.shares {
		return noCache{}
	}
	rows, ring := room, false
	if w := b.spec.window; w > 0 && w < room {
		rows, ring = w, true
	}
	return &keysValues{l.Alloc(dtype, rows, b.spec.kvWidth()), l.Alloc(dtype, rows, b.spec.kvWidth()), ring}
}

func (h *keysValues) release() {
	h.keys.Release()
	h.values.Release()
}

func (b *attentionMixer) decode(c *pass, caches []mixerCache, n tensorops.Tensor) tensorops.Tensor {
	qkv := c.project(n, b.qkv)
	var gate tensorops.Tensor
	qkv[0], gate = b.splitGate(c, qkv[0])
	q, k, v := b.parts(qkv)
	q, k, stats := b.normQK(c, q, k)
	v, vStats := b.normV(c, v)
	b.rotate(c, q, k, false)
	o := b.attended(c)
	switch {
	case b.spec.shares:
		b.decodeShared(c, o, q)
		b.freeQK(c, q, tensorops.Tensor{})
	case b.spec.keeps:
		b.decodeRuns(c, caches, o, q, k, v)
		c.fed.held = append(c.fed.held, k, v)
		free(c.List, &q, &vStats)
	default:
		b.decodeRuns(c, caches, o, q, k, v)
		b.freeQK(c, q, k)
		b.freeV(c, v, vStats)
	}
	if b.spec.outputGate {
		c.Gate(o, gate, o, outputGate)
	}
	free(c.List, &n, &stats[0], &stats[1], &qkv[0], &qkv[1], &qkv[2], &gate)
	return o
}

// decodeRuns records attention for the new positions of sequences.
func (b *attentionMixer) decodeRuns(c *pass, caches []mixerCache, o, q, k, v tensorops.Tensor) {
	for i, r := range c.runs() {
		if c.fed.branch {
			h, _ := caches[i].(*keysValues)
			b.attendBranch(c, o, q, k, v, r, h)
			continue
		}
		b.attendCached(c, o, q, k, v, r, caches[i].(*keysValues))
	}
}

// attendCached records attention for the new positions r of a sequence: their keys and values go to the cache, and their
// queries attend to it.
func (b *attentionMixer) attendCached(c *pass, o, q, k, v tensorops.Tensor, r run, h *keysValues) {
	n, used := r.hi-r.lo, r.first
	o, q, k, v = o.RowRange(r.lo, r.hi), q.RowRange(r.lo, r.hi), k.RowRange(r.lo, r.hi), v.RowRange(r.lo, r.hi)
	var t attended
	switch w := b.spec.window; {
	case !h.ring:
		c.Copy(h.keys.RowRange(used, used+n), k)
		c.Copy(h.values.RowRange(used, used+n), v)
		first := 0 // first key that any of the queries attends to
		if w > 0 {
			first = max(0, used+1-w)
		}
		t = attended{keys: h.keys.RowRange(first, used+n), values: h.values.RowRange(first, used+n), window: w}
	case n == 1: // the query sees every key of the ring, in whatever order
		h.store(c, k, v, used)
		rows := min(used+1, h.keys.Rows())
		t = attended{keys: h.keys.RowRange(0, rows), values: h.values.RowRange(0, rows), whole: true}
	default:
		allK, allV := h.before(c, k, v, used)
		t = attended{keys: allK, values: allV, window: w, owned: allK != k}
	}
	b.attendTo(c, o, q, &t, n)
	if b.leave(c, t); h.ring && n > 1 { // only now, since the first queries attend to keys that the last positions replace
		h.store(c, k, v, used)
	}
}

// attendBranch records attention for positions r that the cache does not keep; h may be nil.
func (b *attentionMixer) attendBranch(c *pass, o, q, k, v tensorops.Tensor, r run, h *keysValues) {
	n, w := r.hi-r.lo, b.spec.window
	o, q, k, v = o.RowRange(r.lo, r.hi), q.RowRange(r.lo, r.hi), k.RowRange(r.lo, r.hi), v.RowRange(r.lo, r.hi)
	allK, allV := k, v
	switch {
	case h == nil || r.first == 0:
	case h.ring:
		allK, allV = h.before(c, k, v, r.first)
	default:
		from := 0
		if w > 0 {
			from = max(0, r.first+1-w)
		}
		old := r.first - from
		allK, allV = c.Alloc(k.DType(), old+n, k.Cols()), c.Alloc(v.DType(), old+n, v.Cols())
		for _, of := range [][3]tensorops.Tensor{{allK, h.keys, k}, {allV, h.values, v}} {
			if old > 0 {
				c.Copy(of[0].RowRange(0, old), of[1].RowRange(from, r.first))
			}
			c.Copy(of[0].RowRange(old, old+n), of[2])
		}
	}
	t := attended{keys: allK, values: allV, window: w, owned: allK != k}
	b.attendTo(c, o, q, &t, n)
	b.leave(c, t)
}

// store records the copies of new keys and values, whose positions start at first, into a ring. It keeps the last of them.
func (h *keysValues) store(c *pass, k, v tensorops.Tensor, first int) {
	rows, n := h.keys.Rows(), k.Rows()
	for at := max(0, n-rows); at < n; {
		to := (first + at) % rows
		m := min(n-at, rows-to)
		c.Copy(h.keys.RowRange(to, to+m), k.RowRange(at, at+m))
		c.Copy(h.values.RowRange(to, to+m), v.RowRange(at, at+m))
		at += m
	}
}

// before returns the keys and values that new queries, whose positions start at first, attend to, in the order of positions:
// those of the ring that are still within a window, then the new ones. Without any in the ring these are k and v.
func (h *keysValues) before(c *pass, k, v tensorops.Tensor, first int) (allK, allV tensorops.Tensor) {
	rows, n := h.keys.Rows(), k.Rows()
	old := min(first, rows-1)
	if old == 0 {
		return k, v
	}
	allK, allV = c.Alloc(k.DType(), old+n, k.Cols()), c.Alloc(v.DType(), old+n, v.Cols())
	for at := 0; at < old; {
		from := (first - old + at) % rows
		m := min(old-at, rows-from)
		c.Copy(allK.RowRange(at, at+m), h.keys.RowRange(from, from+m))
		c.Copy(allV.RowRange(at, at+m), h.values.RowRange(from, from+m))
		at += m
	}
	c.Copy(allK.RowRange(old, old+n), k)
	c.Copy(allV.RowRange(old, old+n), v)
	return allK, allV
}

package collective

import (
	"github.com/troupe-ml/troupe/tensorops"
)

// work is what has to be done in memory once all members of a group in one process have come: jobs that
// don't depend on each other.
type work struct {
	calls []call // by rank
	n     int    // members
	bytes int    // of all that is read
	jobs  int
	per   int // jobs of one slice
	run   func(w *work, s *scratch, job int)

	size   int // bytes of an element
	inner  int // elements that follow each other in one member's part
	length int // elements of a slice
	chunk  int // elements of a job
	src    [][]byte
	dst    [][]byte
}

func newWork(calls []call) *work {
	a := &calls[0]
	w := &work{calls: calls, n: len(calls)}
	if a.What == tensorops.Barrier || a.Src.Len() == 0 && a.What != tensorops.AllToAllV {
		return w
	}
	w.size = a.Src.DType().Size()
	for i := range calls {
		w.src = append(w.src, tensorops.Bytes(calls[i].Src))
		w.dst = append(w.dst, tensorops.Bytes(calls[i].Dst))
	}
	w.bytes = w.n * len(w.src[0])
	slices := 1
	w.length = a.Src.Len()
	switch a.What {
	case tensorops.AllReduce:
		w.run = (*work).allReduce
	case tensorops.ReduceScatter:
		w.run, slices, w.length = (*work).reduceScatter, w.n, a.Dst.Len()
		w.inner = a.Dst.Len() / outer(a.Dst, a.Dim)
	case tensorops.AllGather:
		w.run, slices = (*work).allGather, w.n
		w.inner = a.Src.Len() / outer(a.Src, a.Dim)
	case tensorops.Broadcast:
		w.run = (*work).broadcast
	case tensorops.AllToAll:
		w.run, slices, w.length = (*work).allToAll, w.n*w.n, a.Src.Len()/w.n
	case tensorops.RingForward:
		w.run, slices = (*work).ringForward, w.n
	case tensorops.AllToAllV:
		w.exchangeRows()
		return w
	}
	w.chunk = max(1, chunkBytes/w.size/w.n)
	w.per = (w.length + w.chunk - 1) / w.chunk
	w.jobs = slices * w.per
	return w
}

// do carries out a job.
func (w *work) do(s *scratch, job int) { w.run(w, s, job) }

// slice is which slice a job belongs to, and which of its elements are the job's.
func (w *work) slice(job int) (slice, lo, hi int) {
	slice, lo = job/w.per, job%w.per*w.chunk
	return slice, lo, min(lo+w.chunk, w.length)
}

// allReduce reduces into the first member's tensor, block by block, and copies each block from the cache.
func (w *work) allReduce(s *scratch, job int) {
	_, lo, hi := w.slice(job)
	a := &w.calls[0]
	for ; lo < hi; lo += blockLen {
		from, to := lo*w.size, min(lo+blockLen, hi)*w.size
		s.operands(w.src, from, to)
		first := w.dst[0][from:to]
		s.reduce(a.Src.DType(), a.How, first, s.from, false)
		for _, dst := range w.dst[1:] {
			copy(dst[from:to], first)
		}
	}
}

// operands sets the same bytes of all sources as operands.
func (s *scratch) operands(src [][]byte, from, to int) {
	s.from = s.from[:0]
	for _, b := range src {
		s.from = append(s.from, b[from:to])
	}
}

// reduceScatter reduces a piece of one member's part. A whole is, for each index before the
// dimension, the members' parts one after another.
func (w *work) reduceScatter(s *scratch, job int) {
	rank, lo, hi := w.slice(job)
	a := &w.calls[0]
	w.runs(lo, hi, func(part, run, n int) {
		from := w.whole(part, run, rank) * w.size
		s.operands(w.src, from, from+n*w.size)
		at := (part*w.inner + run) * w.size
		s.reduce(a.Src.DType(), a.How, w.dst[rank][at:][:n*w.size], s.from, false)
	})
	clear(s.from)
}

// runs calls f for what follows each other both in a part and in the whole: n elements from run on, of the
// given index before the dimension.
func (w *work) runs(lo, hi int, f func(index, run, n int)) {
	for lo < hi {
		run := lo % w.inner
		n := min(hi-lo, w.inner-run)
		f(lo/w.inner, run, n)
		lo += n
	}
}

// whole is where in the whole an element of a member's part is.
func (w *work) whole(index, run, rank int) int { return (index*w.n+rank)*w.inner + run }

// allGather copies a piece of one member's part to all.
func (w *work) allGather(_ *scratch, job int) {
	rank, lo, hi := w.slice(job)
	w.runs(lo, hi, func(index, run, n int) {
		piece := w.src[rank][(index*w.inner+run)*w.size:][:n*w.size]
		to := w.whole(index, run, rank) * w.size
		for _, dst := range w.dst {
			if &dst[to] != &piece[0] { // else it lies where it belongs
				copy(dst[to:], piece)
			}
		}
	})
}

func (w *work) broadcast(_ *scratch, job int) {
	_, lo, hi := w.slice(job)
	root := w.calls[0].Root
	piece := w.src[root][lo*w.size : hi*w.size]
	for rank, dst := range w.dst {
		if rank != root {
			copy(dst[lo*w.size:], piece)
		}
	}
}

func (w *work) allToAll(_ *scratch, job int) {
	slice, lo, hi := w.slice(job)
	from, to := slice/w.n, slice%w.n
	piece := w.src[from][(to*w.length+lo)*w.size : (to*w.length+hi)*w.size]
	copy(w.dst[to][(from*w.length+lo)*w.size:], piece)
}

func (w *work) ringForward(_ *scratch, job int) {
	rank, lo, hi := w.slice(job)
	before := (rank + w.n - 1) % w.n
	copy(w.dst[rank][lo*w.size:hi*w.size], w.src[before][lo*w.size:])
}

package cuda

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// graphs are the segments that a stream launches again and again, a chunk's passes above
// all, as CUDA graphs: all of their kernels go to the device in one call.
//
// What a segment launches depends on its operations alone: their numbers, and the shapes
// and addresses of their tensors. So those are a graph's key; the counters of dropout
// masks, which change from step to step, lie in the stream's memory. A stage takes its
// memory from an arena in an order that repeats, and with it the addresses do. A key that
// comes for the second time is captured; those that come once, as they do where outputs
// of other stages come in a changing order, are launched kernel by kernel. So are those
// whose capture has failed; it is tried again when they come again, limitCaptures times in
// all.
type graphs struct {
	kept   map[string]*graph
	seen   map[uint64]struct{} // hashes of keys that came once
	failed map[uint64]int      // by the hash of a key: how often its capture has
	row    int                 // captures that failed since one did not
	seed   maphash.Seed
	key    []byte // of the segment under way
	time   uint64 // segments so far
	holds  bool   // scratch memory, see capture
	hold   uint64 // by what the arena knows that
	making bool   // one is being captured
	off    bool   // none are made
}

type graph struct {
	handle driver.Graph
	used   uint64 // when it was launched last
}

func newGraphs() graphs {
	return graphs{kept: make(map[string]*graph), seen: make(map[uint64]struct{}), failed: make(map[uint64]int), seed: maphash.MakeSeed()}
}

// tabled are the operations whose kernels read a table that comes with the batch.
var tabled = []tensorops.Kind{tensorops.KindSquaredNorm, tensorops.KindAdamW}

// capturable reports whether a segment can be a graph, and is worth one.
func capturable(ops []tensorops.Op) bool {
	for i := range ops {
		if slices.Contains(tabled, ops[i].Kind) {
			return false
		}
	}
	return len(ops) >= minGraphOps
}

// launchGraph launches a segment as a graph; false if it has to be launched in the usual
// way.
func (x *exec) launchGraph(ops []tensorops.Op) (bool, error) {
	g := &x.graphs
	if g.off || !capturable(ops) {
		return false, nil
	}
	g.time++
	g.key = g.key[:0]
	for i := range ops {
		g.key = appendKey(g.key, &ops[i])
	}
	is, ok := g.kept[string(g.key)]
	if !ok {
		h := maphash.Bytes(g.seed, g.key)
		if !g.again(h) || g.failed[h] >= limitCaptures || !g.room(x.driver) {
			return false, nil
		}
		handle, err := x.capture(ops)
		if err != nil {
			// What is wrong with the operations, launching them says; and that works
			// where the driver cannot make graphs.
			x.captureFailed(h, ops, err)
			return false, nil
		}
		g.row = 0
		x.work.count(func(is *Work) { is.Graphs++ })
		is = &graph{handle: handle}
		g.kept[string(g.key)] = is
	}
	is.used = g.time
	return true, x.driver.LaunchGraph(is.handle, x.stream)
}

// captureFailed notes that the capture of a segment has failed, and says so.
func (x *exec) captureFailed(hash uint64, ops []tensorops.Op, err error) {
	g := &x.graphs
	if len(g.failed) == limitSeen {
		clear(g.failed)
	}
	g.failed[hash]++
	g.row++
	g.off = g.row == limitFailedGraphs
	text := fmt.Sprintf("%d operations starting with %v: %v", len(ops), &ops[0], err)
	x.work.count(func(is *Work) {
		is.FailedGraphs++
		is.GraphError = text
	})
	switch {
	case g.off:
		x.work.say("CUDA: %d graphs in a row could not be created, so operations are launched kernel by kernel from now on, which takes more CPU time. The last one: %s", g.row, text)
	case g.failed[hash] == 1:
		x.work.say("CUDA: a graph could not be created, so its operations are launched kernel by kernel: %s", text)
	}
}

// again notes a key by its hash; true if it has come before, or one with the same hash.
func (g *graphs) again(h uint64) bool {
	if _, ok := g.seen[h]; ok {
		return true
	}
	if len(g.seen) == limitSeen {
		clear(g.seen)
	}
	g.seen[h] = struct{}{}
	return false
}

// room makes room for one more graph, at the cost of one that has not been used for long.
func (g *graphs) room(d *driver.Driver) bool {
	if len(g.kept) < limitGraphs {
		return true
	}
	var oldest string
	when := uint64(math.MaxUint64)
	for key, is := range g.kept {
		if is.used < when {
			oldest, when = key, is.used
		}
	}
	const long = 4 * limitGraphs // segments
	if g.time-when < long {
		return false
	}
	_ = d.EndGraph(g.kept[oldest].handle) // the context ends in any case
	delete(g.kept, oldest)
	return true
}

// capture makes a graph of a segment.
func (x *exec) capture(ops []tensorops.Op) (driver.Graph, error) {
	// Scratch memory whose address is in a graph must not go back to the driver.
	if !x.graphs.holds {
		x.graphs.holds, x.graphs.hold = true, x.temporary.Hold()
	}
	x.graphs.making = true
	defer func() { x.graphs.making = false }()
	if err := x.driver.BeginCapture(x.stream); err != nil {
		return 0, err
	}
	_, failed := x.launchAll(ops)
	handle, err := x.driver.EndCapture(x.stream)
	if failed != nil && err == nil {
		_ = x.driver.EndGraph(handle)
	}
	if failed != nil {
		return 0, failed
	}
	return handle, err
}

// dropGraphs gives the graphs back, and with them the hold on scratch memory whose addresses they
// have. They are made again when their segments come again. One that is being made keeps all.
func (x *exec) dropGraphs() {
	g := &x.graphs
	if g.making || !g.holds {
		return
	}
	g.close(x.driver)
	g.holds = false
	x.temporary.Release(g.hold)
}

// close gives the graphs back. Launches of them that are under way are finished.
func (g *graphs) close(d *driver.Driver) {
	for _, is := range g.kept {
		_ = d.EndGraph(is.handle) // the context ends in any case
	}
	clear(g.kept)
}

// appendKey appends all that an operation's launches depend on, in an encoding that no two
// different operations share.
func appendKey(key []byte, o *tensorops.Op) []byte {
	number := func(v uint64) { key = binary.NativeEndian.AppendUint64(key, v) }
	last := len(o.T)
	for last > 0 && !o.T[last-1].Valid() {
		last--
	}
	key = append(key, byte(o.Kind), byte(o.Flags), byte(o.Flags>>8), byte(last))
	for _, t := range o.T[:last] {
		if !t.Valid() {
			key = append(key, 0)
			continue
		}
		key = append(key, 1, byte(t.DType()))
		number(address(t))
		number(uint64(t.Rows()))
		number(uint64(t.Cols()))
		number(uint64(t.Stride()))
	}
	for _, v := range o.I {
		number(uint64(v))
	}
	for _, v := range o.F {
		number(math.Float64bits(v))
	}
	number(uint64(o.Key.K0)<<32 | uint64(o.Key.K1))
	if o.Rotation != nil {
		content := o.Rotation.Key()
		key = append(key, content[:]...)
	}
	return key
}

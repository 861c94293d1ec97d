package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// outcome is what a real execution of a world came to.
type outcome struct {
	stuck    map[int]int // ranks that wait for ever, and the step that they are in
	errs     []error
	wrong    map[[2]int]bool // collectives, by group and number from 1, whose numbers are not those that the member brought
	leftover int             // messages that nobody took
}

func (o *outcome) clean() bool {
	return len(o.stuck) == 0 && len(o.errs) == 0 && len(o.wrong) == 0 && o.leftover == 0
}

func (o *outcome) String() string {
	return fmt.Sprintf("stuck %v, errors %v, wrong %v, left over %d", o.stuck, o.errs, o.wrong, o.leftover)
}

// shapes are the collectives of random worlds, by What.
var shapes = func() map[string]tensorops.CollectiveArgs {
	all := make(map[string]tensorops.CollectiveArgs)
	for what := tensorops.AllReduce; what <= tensorops.Barrier; what++ {
		for rows := 1; rows <= 2; rows++ {
			name := fmt.Sprintf("%v of %d", what, rows)
			if what == tensorops.Barrier {
				name = what.String()
			}
			all[name] = tensorops.CollectiveArgs{What: what, Dim: rows} // Dim: rows, until tensors are made
		}
	}
	return all
}()

// execution runs a world: a goroutine for each rank, groups in memory, bounded channels as credits.
type execution struct {
	w       *World
	arena   tensorops.Arena
	groups  [][]*collective.Group // by group and member
	mail    map[Message]chan struct{}
	edges   []chan struct{}        // credits that are left; nil: any number
	counts  [][]int                // by rank and group: collectives that it has begun
	handles [][]*collective.Handle // by rank
	quit    chan struct{}

	mu      sync.Mutex
	outcome outcome
	ids     map[string]float32 // of what numbers are
}

// execute runs a world until every goroutine has ended or is blocked for good, which the runtime counts
// (testing/synctest): no clock is asked. It must be called in a bubble.
func execute(w *World, arena tensorops.Arena) *outcome {
	x := &execution{w: w, arena: arena, mail: make(map[Message]chan struct{}), quit: make(chan struct{}),
		outcome: outcome{stuck: make(map[int]int), wrong: make(map[[2]int]bool)}, ids: make(map[string]float32)}
	for i, g := range w.Groups {
		x.groups = append(x.groups, collective.Local(fmt.Sprintf("<%d>", i), len(g.Members)))
	}
	for _, e := range w.Edges {
		var credits chan struct{}
		if e.Credits >= 0 {
			credits = make(chan struct{}, 1<<10)
			for range e.Credits {
				credits <- struct{}{}
			}
		}
		x.edges = append(x.edges, credits)
	}
	for r := range w.Ranks {
		for _, s := range w.Ranks[r].Steps {
			for _, list := range [][]Message{s.Takes, s.Sends} {
				for _, m := range list {
					if x.mail[m] == nil {
						x.mail[m] = make(chan struct{}, 1)
					}
				}
			}
		}
	}
	for r := range w.Ranks {
		x.counts = append(x.counts, make([]int, len(w.Groups)))
		x.outcome.stuck[r] = 0
	}
	x.handles = make([][]*collective.Handle, len(w.Ranks))
	for r := range w.Ranks {
		go x.rank(r) // ends with its steps, an error, or quit
	}
	synctest.Wait()
	close(x.quit)
	synctest.Wait()
	for _, c := range x.mail {
		x.outcome.leftover += len(c)
	}
	// Of a collective that failed while its member waited for something else, too.
	for _, h := range slices.Concat(x.handles...) {
		select {
		case <-h.Ended():
			if err := h.Wait(context.Background()); err != nil {
				x.outcome.errs = append(x.outcome.errs, err)
			}
		default:
		}
	}
	return &x.outcome
}

// rank does a rank's steps.
func (x *execution) rank(rank int) {
	for i := range x.w.Ranks[rank].Steps {
		x.mu.Lock()
		x.outcome.stuck[rank] = i
		x.mu.Unlock()
		ended, err := x.step(rank, &x.w.Ranks[rank].Steps[i])
		if err != nil {
			x.mu.Lock()
			x.outcome.errs = append(x.outcome.errs, err)
			x.mu.Unlock()
		}
		if !ended {
			return
		}
	}
	x.mu.Lock()
	delete(x.outcome.stuck, rank)
	x.mu.Unlock()
}

// wait takes from a channel; false: it never came.
func (x *execution) wait(c <-chan struct{}) bool { return came(c, x.quit) }

// came takes from a channel; false: quit was closed, and nothing had come.
func came(c, quit <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
	}
	select {
	case <-c:
		return true
	case <-quit:
		return false
	}
}

// begun is a collective under way, and what to look at when it has ended.
type begun struct {
	handle  *collective.Handle
	check   func()
	checked *bool
}

func (x *execution) step(rank int, s *Step) (ended bool, err error) {
	for _, m := range s.Takes {
		if !x.wait(x.mail[m]) {
			return false, nil
		}
	}
	for _, m := range s.Sends {
		if c := x.edges[m.Edge]; c != nil && !x.wait(c) {
			return false, nil
		}
	}
	for _, m := range s.Takes {
		if c := x.edges[m.Edge]; c != nil {
			c <- struct{}{}
		}
	}
	var later []begun // of the step, by number - 1
	await := func(all ...begun) bool {
		for _, b := range all {
			if !x.wait(b.handle.Ended()) {
				return false
			}
			if err := b.handle.Wait(context.Background()); err != nil {
				return false // the handle keeps it: see execute
			}
			if !*b.checked { // a wait for one, and then one for all
				*b.checked = true
				b.check()
			}
		}
		return true
	}
	for i := range s.Ops {
		o := &s.Ops[i]
		switch {
		case o.Group < 0:
			waits := later
			if n := int(o.Number); n > len(later) {
				waits = nil
			} else if n > 0 {
				waits = later[n-1 : n]
			}
			if !await(waits...) {
				return false, nil
			}
		case o.Later:
			b, err := x.begin(rank, s, o)
			if err != nil {
				return false, err
			}
			later = append(later, b)
		default:
			b, err := x.begin(rank, s, o)
			if err != nil {
				return false, err
			}
			if !await(b) {
				return false, nil
			}
		}
	}
	if !await(later...) {
		return false, nil
	}
	for _, m := range s.Sends {
		select {
		case x.mail[m] <- struct{}{}:
		default:
			return false, fmt.Errorf("rank %d: message %v came twice", rank, m)
		}
	}
	return true, nil
}

func (x *execution) do(rank int, g *collective.Group, a tensorops.CollectiveArgs) *collective.Handle {
	h := g.Do(a)
	x.handles[rank] = append(x.handles[rank], h)
	return h
}

// id is the number that stands for what a collective is of.
func (x *execution) id(s *Step, o *Op) float32 {
	key := o.Of
	if o.OfStep {
		key += "|" + s.Name
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	id, there := x.ids[key]
	if !there {
		id = float32(len(x.ids) + 1)
		x.ids[key] = id
	}
	return id
}

// begin starts a collective whose numbers say what they are of.
func (x *execution) begin(rank int, s *Step, o *Op) (begun, error) {
	place := -1
	for k, m := range x.w.Groups[o.Group].Members {
		if m == rank {
			place = k
		}
	}
	if place < 0 {
		return begun{}, fmt.Errorf("rank %d is not in group %d", rank, o.Group)
	}
	a, known := shapes[o.What]
	if !known {
		return begun{}, fmt.Errorf("unknown collective %q", o.What)
	}
	x.counts[rank][o.Group]++
	g := x.groups[o.Group][place]
	rows, n := a.Dim, g.Size()
	a.Dim = 0
	if a.What == tensorops.Barrier {
		return begun{x.do(rank, g, a), func() {}, new(bool)}, nil
	}
	id, want := x.id(s, o), float32(0)
	source, destination := rows, rows
	want = id
	var err error
	switch a.What {
	case tensorops.AllReduce:
		want = id * float32(n)
	case tensorops.ReduceScatter:
		source, want = rows*n, id*float32(n)
	case tensorops.AllGather:
		destination = rows * n
	case tensorops.AllToAll:
		source, destination = rows*n, rows*n
	case tensorops.AllToAllV: // of one expert for each member
		source, destination = rows*n, rows*n
		if a.Table, err = x.table(n, rows); err != nil {
			return begun{}, err
		}
	}
	shape := func(rows int) []int {
		if a.What == tensorops.AllToAllV {
			return []int{rows, 1}
		}
		return []int{rows}
	}
	if a.Src, err = tensorops.NewTensor(x.arena, tensorops.Float32, shape(source)...); err != nil {
		return begun{}, err
	}
	numbers := tensorops.Elements[float32](a.Src)
	for i := range numbers {
		numbers[i] = id
	}
	switch a.What {
	case tensorops.AllReduce, tensorops.Broadcast:
		a.Dst = a.Src
	default:
		if a.Dst, err = tensorops.NewTensor(x.arena, tensorops.Float32, shape(destination)...); err != nil {
			return begun{}, err
		}
	}
	at := [2]int{int(o.Group), x.counts[rank][o.Group]}
	return begun{x.do(rank, g, a), func() {
		for _, v := range tensorops.Elements[float32](a.Dst) {
			if v != want {
				x.mu.Lock()
				x.outcome.wrong[at] = true
				x.mu.Unlock()
				break
			}
		}
		if a.Dst.Buffer() != a.Src.Buffer() {
			a.Dst.Release()
		}
		a.Src.Release()
		if a.Table.Valid() {
			a.Table.Release()
		}
	}, new(bool)}, nil
}

// table makes the table of an exchange in which each of n members has that many rows for each.
func (x *execution) table(n, rows int) (tensorops.Tensor, error) {
	t, err := tensorops.NewTensor(x.arena, tensorops.Int32, n, n+1)
	if err == nil {
		for i, all := 0, tensorops.Elements[int32](t); i < len(all); i++ {
			all[i] = int32(i % (n + 1) * rows)
		}
	}
	return t, err
}

// mismatches are the collectives in which an execution's errors say that members differ.
func (o *outcome) mismatches() (all [][2]int) {
	for _, err := range o.errs {
		var group, number int
		if at := strings.Index(err.Error(), "group <"); at >= 0 {
			if n, _ := fmt.Sscanf(err.Error()[at:], "group <%d>, collective %d:", &group, &number); n == 2 {
				all = append(all, [2]int{group, number})
			}
		}
	}
	return all
}

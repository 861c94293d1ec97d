package world

import (
	"context"
	"fmt"
	"sync"
	"testing/synctest"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// tableRun executes the tables of replicas whose ranks share experts, without asking a checker: a goroutine for each rank, which does
// what stages do. A message is a channel with room for one. A pass is a state machine that refuses what it cannot do next, and its
// exchanges are all-to-alls of a group of package collective, whose numbers say what they are of.
type tableRun struct {
	tables    []*scheduler.Table
	exchanges func(a scheduler.Action) []scheduler.Type
	groups    [][]*collective.Group // by stage and replica
	arena     tensorops.Arena
	quit      chan struct{}

	mu      sync.Mutex
	mail    map[tableMessage]chan struct{}
	credits map[tableEdge]chan struct{}
	limits  []*scheduler.Credits // by replica; nil: unlimited
	stuck   map[[2]int]string    // by replica and rank: what it does
	errs    []error
}

// tableEdge is an edge between neighbors in a replica's pipeline.
type tableEdge struct {
	replica int
	kind    scheduler.EdgeKind
	from    int32
}

type tableMessage struct {
	tableEdge
	microbatch int32
}

// executeTables runs the tables until every goroutine has ended or is blocked for good. It must be called in a bubble. limits has the
// credits of each replica, if they are known.
func executeTables(tables []*scheduler.Table, limits []*scheduler.Credits, exchanges func(a scheduler.Action) []scheduler.Type,
	arena tensorops.Arena) *tableRun {
	x := &tableRun{tables: tables, exchanges: exchanges, arena: arena, quit: make(chan struct{}), mail: make(map[tableMessage]chan struct{}),
		credits: make(map[tableEdge]chan struct{}), limits: limits, stuck: make(map[[2]int]string)}
	for stage := range tables[0].Ranks {
		x.groups = append(x.groups, collective.Local(fmt.Sprint("experts of stage ", stage), len(tables)))
	}
	for replica, t := range tables {
		for rank := range t.Ranks {
			x.stuck[[2]int{replica, rank}] = "nothing"
		}
	}
	for replica, t := range tables {
		for rank := range t.Ranks {
			go x.rank(replica, rank) // ends with its row, an error, or quit
		}
	}
	synctest.Wait()
	close(x.quit)
	synctest.Wait()
	for _, c := range x.mail {
		if len(c) > 0 {
			x.errs = append(x.errs, fmt.Errorf("a message is left over"))
			break
		}
	}
	return x
}

func (x *tableRun) clean() bool { return len(x.stuck) == 0 && len(x.errs) == 0 }

func (x *tableRun) String() string { return fmt.Sprintf("stuck %v, errors %v", x.stuck, x.errs) }

func (x *tableRun) channel(m tableMessage) chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.mail[m]
	if c == nil {
		c = make(chan struct{}, 1)
		x.mail[m] = c
	}
	return c
}

// credit returns the credits of an edge; nil: unlimited.
func (x *tableRun) credit(e tableEdge) chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.limits[e.replica] == nil {
		return nil
	}
	c := x.credits[e]
	if c == nil {
		n := x.limits[e.replica].Of(e.kind, int(e.from))
		c = make(chan struct{}, 1<<10)
		for range n {
			c <- struct{}{}
		}
		x.credits[e] = c
	}
	return c
}

// wait takes from a channel; false: it never came.
func (x *tableRun) wait(c <-chan struct{}) bool { return came(c, x.quit) }

// tableRank is a rank that executes its row.
type tableRank struct {
	*tableRun
	replica, rank int
	done          map[[2]int32]uint8 // by chunk and microbatch: 1 F, 2 I, 4 W
}

// steps are the bits of done.
var steps = map[scheduler.Type]uint8{scheduler.F: 1, scheduler.I: 2, scheduler.W: 4, scheduler.B: 6}

// passState is a pass that has begun: the part that it is at, and the exchange that is on its way.
type passState struct {
	of   scheduler.Action
	part int
	way  *onWay
}

type onWay struct {
	handle *collective.Handle
	check  func() error
}

func (x *tableRun) rank(replica, rank int) {
	r := &tableRank{x, replica, rank, make(map[[2]int32]uint8)}
	row := x.tables[replica].Ranks[rank]
	for i := 0; i < len(row); i += scheduler.Width(row, i) {
		group := row[i : i+scheduler.Width(row, i)]
		x.mu.Lock()
		x.stuck[[2]int{replica, rank}] = group[0].String()
		x.mu.Unlock()
		ended, err := r.group(group)
		if err != nil {
			x.fail(fmt.Errorf("replica %d, rank %d, %v: %w", replica, rank, group[0], err))
		}
		if !ended {
			return
		}
	}
	if err := r.missing(); err != nil {
		x.fail(err)
	}
	x.mu.Lock()
	delete(x.stuck, [2]int{replica, rank})
	x.mu.Unlock()
}

func (x *tableRun) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.errs = append(x.errs, err)
}

// missing returns an error if the rank has not done all of its chunks.
func (r *tableRank) missing() error {
	t := r.tables[r.replica]
	want := uint8(7)
	if t.ForwardOnly {
		want = 1
	}
	for chunk := range int32(t.NumChunks) {
		for m := range int32(t.Microbatches) {
			if t.RankOf(int(chunk)) == r.rank && r.done[[2]int32{chunk, m}] != want {
				return fmt.Errorf("chunk %d, microbatch %d: only %b is done", chunk, m, r.done[[2]int32{chunk, m}])
			}
		}
	}
	return nil
}

// legal reports what a pass cannot do on this rank.
func (r *tableRank) legal(a scheduler.Action) error {
	t := r.tables[r.replica]
	if a.Chunk < 0 || int(a.Chunk) >= t.NumChunks || a.Microbatch < 0 || int(a.Microbatch) >= t.Microbatches {
		return fmt.Errorf("%v: no such chunk or microbatch", a)
	}
	if t.RankOf(int(a.Chunk)) != r.rank {
		return fmt.Errorf("%v: the chunk is not here", a)
	}
	done := r.done[[2]int32{a.Chunk, a.Microbatch}]
	ok := false
	switch a.Type {
	case scheduler.F:
		ok = done == 0
	case scheduler.I, scheduler.B:
		ok = done == 1 && !t.ForwardOnly
	case scheduler.W:
		ok = done == 3 && !t.ForwardOnly
	}
	if !ok {
		return fmt.Errorf("%v: %b is done", a, done)
	}
	return nil
}

// edges calls f for the edge of a pass's input and for that of its output.
func (r *tableRank) edges(a scheduler.Action, in, out func(tableMessage)) {
	last := int32(r.tables[r.replica].NumChunks - 1)
	e := func(kind scheduler.EdgeKind, from int32) tableMessage {
		return tableMessage{tableEdge{r.replica, kind, from}, a.Microbatch}
	}
	switch a.Type {
	case scheduler.F:
		if a.Chunk > 0 {
			in(e(scheduler.ForwardEdge, a.Chunk-1))
		}
		if a.Chunk < last {
			out(e(scheduler.ForwardEdge, a.Chunk))
		}
	case scheduler.I, scheduler.B:
		if a.Chunk < last {
			in(e(scheduler.BackwardEdge, a.Chunk+1))
		}
		if a.Chunk > 0 {
			out(e(scheduler.BackwardEdge, a.Chunk))
		}
	}
}

// group executes actions that run as one.
func (r *tableRank) group(group []scheduler.Action) (ended bool, err error) {
	if group[len(group)-1].Overlap {
		return false, fmt.Errorf("the row ends in a pair")
	}
	parts := group[0].Part > 0
	switch {
	case len(group) == 1 && parts:
		return false, fmt.Errorf("a part alone")
	case !parts && len(group) > 2:
		return false, fmt.Errorf("a pair of %d", len(group))
	case !parts && len(group) == 2 && (!group[0].Type.IsForward() || group[1].Type.IsForward() || group[1].Type == scheduler.W):
		return false, fmt.Errorf("no pair: %v", group)
	}
	var passes [2]*passState
	slot := func(a scheduler.Action) **passState {
		if a.Type.IsForward() {
			return &passes[0]
		}
		return &passes[1]
	}
	for _, a := range group { // what starts: all of it, or nothing
		if a.Part > 0 != parts {
			return false, fmt.Errorf("%v among parts", a)
		}
		if s := slot(a); !a.Type.IsExchange() && a.Part <= 1 {
			a.Overlap = false
			if *s != nil || parts && a.Type == scheduler.W {
				return false, fmt.Errorf("%v: a second pass, or a part of W", a)
			}
			if err := r.legal(a); err != nil {
				return false, err
			}
			*s = &passState{of: a}
		}
	}
	waits := true
	for _, s := range passes {
		if s != nil {
			r.edges(s.of, func(m tableMessage) { waits = waits && r.wait(r.channel(m)) }, func(m tableMessage) {
				if c := r.credit(m.tableEdge); waits && c != nil {
					waits = r.wait(c)
				}
			})
		}
	}
	if !waits {
		return false, nil
	}
	for _, s := range passes {
		if s != nil {
			r.edges(s.of, func(m tableMessage) {
				if c := r.credit(m.tableEdge); c != nil {
					c <- struct{}{}
				}
			}, func(tableMessage) {})
		}
	}
	for _, a := range group {
		if ended, err := r.act(*slot(a), a); !ended || err != nil {
			return false, err
		}
	}
	for _, s := range passes {
		if s == nil {
			continue
		}
		if n := len(r.exchanges(whole(s.of))); parts && (s.way != nil || s.part != n+1) {
			return false, fmt.Errorf("%v ends after part %d of %d", s.of, s.part, n+1)
		}
		r.done[[2]int32{s.of.Chunk, s.of.Microbatch}] |= steps[s.of.Type]
		var twice error
		r.edges(s.of, func(tableMessage) {}, func(m tableMessage) {
			select {
			case r.channel(m) <- struct{}{}:
			default:
				twice = fmt.Errorf("%v is sent twice", m)
			}
		})
		if twice != nil {
			return false, twice
		}
	}
	return true, nil
}

func whole(a scheduler.Action) scheduler.Action {
	a.Overlap, a.Part = false, 0
	return a
}

// act executes a whole action, or a part, or begins an exchange.
func (r *tableRank) act(s *passState, a scheduler.Action) (ended bool, err error) {
	if s == nil {
		return false, fmt.Errorf("%v: its pass does not start here", a)
	}
	all := r.exchanges(whole(s.of))
	if a.Part == 0 {
		for k, typ := range all {
			w, err := r.begin(s.of, k+1, typ)
			if err != nil {
				return false, err
			}
			if ended, err := r.end(w); !ended || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if a.Chunk != s.of.Chunk || a.Microbatch != s.of.Microbatch {
		return false, fmt.Errorf("%v is no part of %v", a, s.of)
	}
	if a.Type.IsExchange() {
		if s.part != int(a.Part) || s.way != nil || s.part > len(all) || all[s.part-1] != a.Type {
			return false, fmt.Errorf("%v after part %d of %v", a, s.part, s.of)
		}
		s.way, err = r.begin(s.of, s.part, a.Type)
		return err == nil, err
	}
	if a.Type != s.of.Type || int(a.Part) != s.part+1 || s.part > 0 && s.way == nil {
		return false, fmt.Errorf("%v after part %d of %v", a, s.part, s.of)
	}
	s.part++
	if s.way == nil {
		return true, nil
	}
	w := s.way
	s.way = nil
	return r.end(w)
}

// begin starts an exchange.
func (r *tableRank) begin(of scheduler.Action, number int, typ scheduler.Type) (*onWay, error) {
	g := r.groups[r.rank][r.replica]
	id := float32(1 + int(of.Chunk) + 64*(int(of.Microbatch)+64*(number+64*int(typ))))
	var both [2]tensorops.Tensor
	for i := range both {
		t, err := tensorops.NewTensor(r.arena, tensorops.Float32, g.Size())
		if err != nil {
			return nil, err
		}
		both[i] = t
	}
	sent, came := tensorops.Elements[float32](both[0]), tensorops.Elements[float32](both[1])
	for i := range sent {
		sent[i] = id
	}
	h := g.AllToAll(both[1], both[0])
	return &onWay{h, func() error {
		defer both[0].Release()
		defer both[1].Release()
		for _, v := range came {
			if v != id {
				return fmt.Errorf("%v of %v: tokens of another exchange came", typ, of)
			}
		}
		return nil
	}}, nil
}

// end waits for an exchange.
func (r *tableRank) end(w *onWay) (ended bool, err error) {
	if !r.wait(w.handle.Ended()) {
		return false, nil
	}
	if err := w.handle.Wait(context.Background()); err != nil {
		return false, err
	}
	err = w.check()
	return err == nil, err
}

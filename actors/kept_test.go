package actors_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// ownWriter is what a stage writes its part with.
type ownWriter = func(context.Context, int64, []trainstate.Place, []stages.Saved) ([]uint32, error)

// sharedDisk is a folder that hosts see: tensors by their offset.
type sharedDisk struct {
	mu      sync.Mutex
	tensors map[int64][]float32
	wrote   map[string]int // calls, by host
}

func newSharedDisk() *sharedDisk {
	return &sharedDisk{tensors: make(map[int64][]float32), wrote: make(map[string]int)}
}

func sumOf(v []float32) uint32 {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, v)
	return crc32.ChecksumIEEE(b.Bytes())
}

func (d *sharedDisk) writeOwn(host string) ownWriter {
	return func(_ context.Context, _ int64, places []trainstate.Place, saved []stages.Saved) (sums []uint32, err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.wrote[host]++
		for i, p := range places {
			d.tensors[p.Offset] = slices.Clone(saved[i].Data)
			sums = append(sums, sumOf(saved[i].Data))
		}
		return sums, nil
	}
}

// writeShared gathers what the others have written and has it written as if all had come.
func (d *sharedDisk) writeShared(l *log) func(context.Context, trainstate.State, []stages.Saved, bool, trainstate.Others) (string, error) {
	return func(ctx context.Context, state trainstate.State, saved []stages.Saved, best bool, others trainstate.Others) (string, error) {
		d.mu.Lock()
		clear(d.tensors)
		d.mu.Unlock()
		var places []trainstate.Place
		var of []int
		for i, v := range saved {
			if others.Holds(v.Name) {
				places, of = append(places, trainstate.Place{Tensor: v.Name, File: "f", Offset: int64(i)}), append(of, i)
			}
		}
		sums, err := others.Write(places)
		if err != nil {
			return "", fmt.Errorf("asking the others: %w", err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		var wrong trainstate.NotWrittenError
		for i, p := range places {
			if v := d.tensors[p.Offset]; v == nil || sumOf(v) != sums[i] {
				wrong.Tensors = append(wrong.Tensors, p.Tensor)
			} else {
				saved[of[i]].Data = v
			}
		}
		if wrong.Err = errors.New("not here"); len(wrong.Tensors) > 0 {
			return "", &wrong
		}
		return l.write(ctx, state, saved, best)
	}
}

// TestStagesWriteTheirParts: the checkpoints are the same, whoever writes them, and a stage
// that can't is asked once.
func TestStagesWriteTheirParts(t *testing.T) {
	table := generate(t, scheduler.Spec{Ranks: 3, Chunks: 1, Microbatches: sequences / microbatchSize})
	tr := training{model: families[0], threads: 1, steps: 4, table: table, cuts: []int{2, 3}}
	hosts := []string{"a", "b", "a"}
	want := tr.runOver(t, hosts)
	full, boom := newSharedDisk(), errors.New("boom")
	for name, c := range map[string]struct {
		shares []bool
		b      func(*sharedDisk) ownWriter
		writes map[string]int
	}{
		"all": {[]bool{true, true, true}, func(d *sharedDisk) func(context.Context, int64, []trainstate.Place, []stages.Saved) ([]uint32, error) {
			return d.writeOwn("b")
		}, map[string]int{"a": 8, "b": 4}},
		"one host":            {[]bool{true, false, true}, nil, map[string]int{"a": 8}},
		"a rank of it":        {[]bool{true, false, false}, nil, map[string]int{"a": 4}},
		"one can't by itself": {[]bool{true, true, true}, nil, map[string]int{"a": 8}},
		"one fails": {[]bool{true, true, true}, func(*sharedDisk) ownWriter {
			return func(context.Context, int64, []trainstate.Place, []stages.Saved) ([]uint32, error) { return nil, boom }
		}, map[string]int{"a": 10}},
		"one panics": {[]bool{true, true, true}, func(*sharedDisk) ownWriter {
			return func(context.Context, int64, []trainstate.Place, []stages.Saved) ([]uint32, error) { panic("oh") }
		}, map[string]int{"a": 10}},
		"one tells too little": {[]bool{true, true, true}, func(*sharedDisk) ownWriter {
			return func(context.Context, int64, []trainstate.Place, []stages.Saved) ([]uint32, error) {
				return []uint32{1}, nil
			}
		}, map[string]int{"a": 10}},
		"one writes to another disk": {[]bool{true, true, true}, func(*sharedDisk) ownWriter {
			return full.writeOwn("b")
		}, map[string]int{"a": 10}},
	} {
		t.Run(name, func(t *testing.T) {
			l, d := &log{}, newSharedDisk()
			run, end := tr.startOver(t, l, hosts, func(host string, s *actors.Spec) {
				s.CheckpointEvery = 1
				switch host {
				case "":
					s.Shares, s.WriteShared = c.shares, d.writeShared(l)
				case "a":
					s.WriteOwn = d.writeOwn("a")
				case "b":
					if c.b != nil {
						s.WriteOwn = c.b(d)
					}
				}
			})
			out := wait(t, run)
			end()
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			if len(l.saves) != 4 {
				t.Fatalf("%d checkpoints", len(l.saves))
			}
			sameState(t, "the end", want.saves[len(want.saves)-1], l.saves[3])
			if fmt.Sprint(d.wrote) != fmt.Sprint(c.writes) {
				t.Errorf("calls by host: %v, want %v", d.wrote, c.writes)
			}
		})
	}
}

// TestEndWhileStagesWrite: a run that is killed while a stage writes ends, the write too, and
// the checkpoint is none.
func TestEndWhileStagesWrite(t *testing.T) {
	table := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: sequences / microbatchSize})
	tr := training{model: families[0], threads: 1, steps: 4, table: table, cuts: []int{2}}
	l, d, writing := &log{}, newSharedDisk(), make(chan struct{})
	run, end := tr.startOver(t, l, []string{"a", "b"}, func(host string, s *actors.Spec) {
		s.CheckpointEvery = 1
		switch host {
		case "":
			s.Shares, s.WriteShared = []bool{true, true}, d.writeShared(l)
		case "a":
			s.WriteOwn = d.writeOwn("a")
		case "b":
			s.WriteOwn = func(ctx context.Context, _ int64, _ []trainstate.Place, _ []stages.Saved) ([]uint32, error) {
				close(writing)
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
	})
	<-writing
	run.Kill()
	out := wait(t, run)
	end()
	if !errors.Is(out.Err, actors.ErrKilled) {
		t.Errorf("it ended with %v", out.Err)
	}
	if len(l.saves) > 0 {
		t.Errorf("%d checkpoints are there", len(l.saves))
	}
}

// stuckDevice is one whose streams never tell that they have done anything, until it is let go.
type stuckDevice struct {
	tensorops.Device
	begun func()
	let   <-chan struct{}
}

type stuckStream struct {
	tensorops.Stream
	of stuckDevice
}

func (d stuckDevice) NewStream(name string) tensorops.Stream {
	return stuckStream{d.Device.NewStream(name), d}
}

func (s stuckStream) Submit(l *tensorops.List, done func(error)) {
	s.Stream.Submit(l, func(err error) {
		s.of.begun()
		<-s.of.let
		done(err)
	})
}

// TestEndWithoutAStage: a run that is killed ends, though a stage in another process does nothing any more.
func TestEndWithoutAStage(t *testing.T) {
	table := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: sequences / microbatchSize})
	tr := training{model: families[0], threads: 1, steps: 4, table: table, cuts: []int{2}}
	begun, let := make(chan struct{}), make(chan struct{})
	var said bytes.Buffer
	run, end := tr.startOver(t, &log{}, []string{"a", "b"}, func(host string, s *actors.Spec) {
		switch host {
		case "":
			s.HaltWithin, s.Logger = 50*time.Millisecond, slog.New(slog.NewTextHandler(&said, nil))
		case "b":
			s.Device = stuckDevice{s.Device, sync.OnceFunc(func() { close(begun) }), let}
		}
	})
	<-begun
	run.Kill()
	out := wait(t, run)
	close(let)
	end()
	if !errors.Is(out.Err, actors.ErrKilled) {
		t.Errorf("it ended with %v", out.Err)
	}
	if want := `stages="stage 1"`; !strings.Contains(said.String(), want) {
		t.Errorf("%s is not said: %s", want, &said)
	}
}

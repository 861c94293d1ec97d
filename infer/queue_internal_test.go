package infer

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/host/device"
)

// CheckReserves: a text has its place in the queue before its prompt is encoded, few prompts are encoded at once, and a caller that
// leaves does not wait for them. The batch has room for two texts. It is closed then.
func CheckReserves(t *testing.T, b *Batch) {
	t.Helper()
	for range limitEncodings {
		b.encoding <- struct{}{}
	}
	ctx, leave := context.WithCancel(t.Context())
	o, ends, stays := TextOptions{Prompt: "x", Tokens: 1}, make(chan error, 1), make(chan error, 1)
	go func() { ends <- b.Generate(ctx, o, nil) }()
	go func() { stays <- b.Generate(t.Context(), o, nil) }()
	for b.Stats().Waiting < 2 {
	}
	if err := b.Generate(t.Context(), o, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	leave()
	if err := <-ends; !errors.Is(err, context.Canceled) || b.Stats().Waiting != 1 {
		t.Errorf("one that leaves: %v, %+v", err, b.Stats())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-stays; !errors.Is(err, fs.ErrClosed) || b.Stats().Waiting != 0 {
		t.Errorf("one that waits at the end: %v, %+v", err, b.Stats())
	}
}

// CheckPromised: the caches of running texts count before they are written.
func CheckPromised(t *testing.T, b *Batch) {
	t.Helper()
	old := device.HostFreeBytes
	t.Cleanup(func() { device.HostFreeBytes = old })
	g := &group{model: b.model(), stream: b.group.stream}
	add := func(free int64) (*grouped, error) {
		device.HostFreeBytes = func() int64 { return free }
		w, err := newWriting(b.model(), TextOptions{Prompt: strings.Repeat("x", 9), Tokens: 80}, func([]byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return g.add(w)
	}
	few, enough := int64(1), int64(1<<30)
	for few+1 < enough {
		free := (few + enough) / 2
		if one, err := add(free); err == nil {
			g.remove(one)
			enough = free
		} else {
			few = free
		}
	}
	first, err := add(enough)
	if err != nil || first.cache == 0 {
		t.Fatal(first, err)
	}
	if _, err := add(enough + first.cache - 1); !errors.Is(err, ErrMemory) {
		t.Errorf("a second text in the memory that the first one has: %v", err)
	}
	first.used = first.room()
	second, err := add(enough) // the rest of the memory is free
	if err != nil {
		t.Fatal(err)
	}
	g.remove(first)
	g.remove(second)
}

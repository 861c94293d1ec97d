package infer_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/infer"
)

// TestGenerateAll: the texts are those that a Generator gives one by one, in the order of their options; a text that can't be generated
// does not end the others.
func TestGenerateAll(t *testing.T) {
	defer goleak.VerifyNone(t)
	from := model(t)
	g, err := infer.OpenGenerator(infer.ModelOptions{From: from})
	if err != nil {
		t.Fatal(err)
	}
	const n, bad = 40, 17
	var all []infer.TextOptions
	reports := make([]infer.GenerateReport, n)
	for i := range n {
		o := options(i % 20)
		if o.Report = &reports[i]; i == bad {
			o.TopK = -1
		}
		all = append(all, o)
	}
	for _, of := range []infer.BatchOptions{{}, {Texts: 1, Waiting: 1}, {Texts: 3, Waiting: 1}, {Texts: 5, Waiting: 100}} {
		b, err := infer.OpenBatch(infer.ModelOptions{From: from}, of)
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		err = b.GenerateAll(t.Context(), slices.Values(all), func(got infer.Generated) error {
			if got.Index != next {
				t.Errorf("text %d comes after text %d", got.Index, next-1)
			}
			if next++; got.Index == bad {
				if !errors.Is(got.Err, infer.ErrOptions) {
					t.Errorf("%v: error %v of a bad option", of, got.Err)
				}
				return nil
			}
			var want strings.Builder
			o := all[got.Index]
			o.Report = new(infer.GenerateReport)
			if err := g.Generate(t.Context(), o, func(p []byte) error { want.Write(p); return nil }); err != nil {
				t.Fatal(err)
			}
			if got.Err != nil || got.Text != want.String() || got.Report != *o.Report || got.Report != reports[got.Index] {
				t.Errorf("%v, text %d: %v, %q %+v, alone %q %+v", of, got.Index, got.Err, got.Text, got.Report, want.String(), *o.Report)
			}
			return nil
		})
		if err != nil || next != n {
			t.Errorf("%v: %d of %d texts, %v", of, next, n, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGenerateAllEnds: an error of emit, the end of the context and the end of the batch end it, and leave no text behind.
func TestGenerateAllEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	b, err := infer.OpenBatch(infer.ModelOptions{From: model(t)}, infer.BatchOptions{Texts: 4})
	if err != nil {
		t.Fatal(err)
	}
	forever := func(yield func(infer.TextOptions) bool) {
		for yield(infer.TextOptions{Prompt: "a", Tokens: 3, IgnoreEnd: true}) {
		}
	}
	full := errors.New("the disk is full")
	seen := 0
	if err := b.GenerateAll(t.Context(), forever, func(infer.Generated) error {
		if seen++; seen == 9 {
			return full
		}
		return nil
	}); !errors.Is(err, full) || seen != 9 {
		t.Errorf("an error of emit ends in %v after %d texts", err, seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := b.GenerateAll(ctx, forever, func(infer.Generated) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context: %v", err)
	}
	if err := b.GenerateAll(t.Context(), func(func(infer.TextOptions) bool) {}, nil); err != nil {
		t.Errorf("no text: %v", err)
	}
	if s := b.Stats(); s.Running != 0 || s.Waiting != 0 {
		t.Errorf("%+v is left", s)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.GenerateAll(t.Context(), forever, func(g infer.Generated) error { return g.Err }); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed batch: %v", err)
	}
}

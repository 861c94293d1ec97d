package infer

import (
	"context"
	"iter"
	"strings"
	"sync"
)

// Generated is a text of Batch.GenerateAll.
type Generated struct {
	Index  int // of the text's options, from 0
	Text   string
	Report GenerateReport
	Err    error // why the text could not be generated, or not to its end
}

// GenerateAll generates a text for each of the options, up to BatchOptions.Texts at once, and calls emit with them in the order of the
// options. Each text is the one that Generate gives. A text that can't be generated has an error and does not end the others; an error
// of emit does. Beside other callers the error may be ErrBusy. Options are read a few ahead, in another
// goroutine; if GenerateAll ends early, it does not wait until that returns.
func (b *Batch) GenerateAll(ctx context.Context, texts iter.Seq[TextOptions], emit func(Generated) error) error {
	ctx, cancel := context.WithCancel(ctx)
	ahead := min(2*b.o.Texts, b.o.Texts+b.o.Waiting) - 1 // beside the one that emit waits for
	a := &asked{batch: b, order: make(chan chan Generated, ahead)}
	defer a.stop()
	defer cancel()
	go a.read(ctx, texts) // ends with the options, or with ctx when it gets the next ones
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case next, more := <-a.order:
			if !more {
				return ctx.Err()
			}
			text := <-next
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := emit(text); err != nil {
				return err
			}
		}
	}
}

// asked are the texts of a GenerateAll.
type asked struct {
	batch *Batch
	order chan chan Generated // in the order of the options; closed at their end

	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup // texts
}

// read requests the texts.
func (a *asked) read(ctx context.Context, texts iter.Seq[TextOptions]) {
	defer close(a.order)
	index := 0
	for o := range texts {
		text := make(chan Generated, 1)
		select {
		case a.order <- text:
		case <-ctx.Done():
			return
		}
		a.mu.Lock()
		if a.stopped {
			a.mu.Unlock()
			return
		}
		i := index
		a.running.Go(func() { text <- a.generate(ctx, i, o) })
		a.mu.Unlock()
		index++
	}
}

func (a *asked) generate(ctx context.Context, index int, o TextOptions) (g Generated) {
	var text strings.Builder
	to := o.Report
	o.Report = &g.Report
	g.Index = index
	g.Err = a.batch.Generate(ctx, o, func(piece []byte) error {
		text.Write(piece)
		return nil
	})
	if g.Text = text.String(); to != nil {
		*to = g.Report
	}
	return g
}

// stop waits for the texts in progress, whose context has ended.
func (a *asked) stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.running.Wait()
}

package infer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/troupe-ml/troupe/internal/run/trained"
)

// ErrBusy: as many texts wait as a Batch allows.
var ErrBusy = errors.New("too many texts wait to be generated")

// BatchOptions bound a Batch.
type BatchOptions struct {
	Texts   int // most texts that are generated at once; 0: 8
	Waiting int // most texts that wait; 0: 64
}

func (o *BatchOptions) check() error {
	if o.Texts == 0 {
		o.Texts = usualTexts
	}
	if o.Waiting == 0 {
		o.Waiting = usualWaiting
	}
	switch {
	case o.Texts < 0 || o.Texts > LimitTexts:
		return fmt.Errorf("%w: %d texts at once; use 1 to %d", ErrOptions, o.Texts, LimitTexts)
	case o.Waiting < 0 || o.Waiting > LimitWaiting:
		return fmt.Errorf("%w: %d waiting texts; use 1 to %d", ErrOptions, o.Waiting, LimitWaiting)
	}
	return nil
}

// Batch is an open model that generates several texts at once. A text may join at any time, while others are being
// generated. Each text is the one that a Generator gives for the same options; on GPUs the last bits of logits may depend on
// the number of texts. Several goroutines may use it.
type Batch struct {
	o     BatchOptions
	group group
	// refused is the first waiting text if there was no memory for it; nil once a text has ended. The loop uses it.
	refused *request

	mu      sync.Mutex
	waiting []*request
	reading int // texts with a place in the queue whose prompt is being encoded
	stats   BatchStats
	closed  bool

	encoding chan struct{} // has a value for each prompt that is being encoded

	wake chan struct{} // capacity 1: something has changed for the loop
	done chan struct{} // closed at the end of the loop
}

// BatchStats counts the texts of a Batch.
type BatchStats struct {
	Running, Waiting int
	Texts            uint64 // that have ended
	PromptTokens     uint64 // of these
	Tokens           uint64 // generated for these
}

// OpenBatch opens a model and reads its weights.
func OpenBatch(o ModelOptions, of BatchOptions) (*Batch, error) {
	if err := of.check(); err != nil {
		return nil, err
	}
	m, err := open(o, true)
	if err != nil {
		return nil, err
	}
	b := newBatch(m, of)
	if err := b.group.load(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	go b.loop() // ends with Close
	return b, nil
}

// BatchOf returns a Batch of an open model, on its own stream. Close closes the model. It is for packages of this module.
func BatchOf(m *trained.Model, of BatchOptions) (*Batch, error) {
	if err := of.check(); err != nil {
		return nil, err
	}
	b := newBatch(m, of)
	go b.loop() // ends with Close
	return b, nil
}

func newBatch(m *trained.Model, of BatchOptions) *Batch {
	if m.Tokenizer != nil {
		_, _ = m.Text() // read once, before several callers use it; an error comes again with the first text
	}
	return &Batch{o: of, group: group{model: m, stream: m.Device.NewStream("generate")}, wake: make(chan struct{}, 1),
		done: make(chan struct{}), encoding: make(chan struct{}, limitEncodings)}
}

// From returns the folder that the model is from.
func (b *Batch) From() string { return b.model().From() }

func (b *Batch) model() *trained.Model { return b.group.model }

// Positions is the number of tokens that the model sees.
func (b *Batch) Positions() int { return b.model().Shape.Config.Positions() }

// ToolMarker returns the text with which the model's chat template begins a call of a function in an answer, such as
// "<tool_call>"; "": it writes the call's JSON alone, or there are no calls.
func (b *Batch) ToolMarker(tools json.RawMessage) string {
	said, err := b.model().Text()
	if err != nil {
		return ""
	}
	return said.ToolMarker(tools)
}

// Stats returns the counts.
func (b *Batch) Stats() BatchStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Waiting = len(b.waiting) + b.reading
	return s
}

// Close ends the texts in progress, whose error is then fs.ErrClosed, and frees the model.
func (b *Batch) Close() error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	b.mu.Unlock()
	b.notify()
	<-b.done
	if again {
		return nil
	}
	return b.model().Close()
}

// request is a text that a caller waits for.
type request struct {
	ctx  context.Context
	text *writing
	in   *grouped // nil: it waits

	mu     sync.Mutex
	pieces []byte        // not yet with the caller; at most the whole text
	ready  chan struct{} // capacity 1: there are pieces
	done   chan struct{} // closed at the end
	err    error
}

// add keeps a piece of the text until the caller takes it. It never waits.
func (r *request) add(piece []byte) error {
	r.mu.Lock()
	r.pieces = append(r.pieces, piece...)
	r.mu.Unlock()
	select {
	case r.ready <- struct{}{}:
	default:
	}
	return nil
}

// send passes on the pieces.
func (r *request) send(emit func([]byte) error) error {
	r.mu.Lock()
	pieces := r.pieces
	r.pieces = nil
	r.mu.Unlock()
	if len(pieces) == 0 {
		return nil
	}
	return emit(pieces)
}

// Generate generates a text, as the function Generate does, together with those of other callers. If Waiting texts wait
// already, the error is ErrBusy. emit runs in the caller's goroutine and delays no other text; o.Warn may run in another one.
func (b *Batch) Generate(ctx context.Context, o TextOptions, emit func(text []byte) error) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &request{ctx: ctx, ready: make(chan struct{}, 1), done: make(chan struct{})}
	if err := b.enqueue(r, o); err != nil {
		return err
	}
	ended := ctx.Done()
	for {
		select {
		case <-r.ready:
			if err := r.send(emit); err != nil {
				cancel(err)
			}
			continue
		case <-ended:
			b.notify()
			ended = nil // the loop ends the text
			continue
		case <-r.done:
		}
		if r.err == nil {
			r.err = r.send(emit)
		}
		if o.Report != nil {
			*o.Report = r.text.window.report
		}
		return r.err
	}
}

// enqueue lets a text wait. It takes the place before the prompt is encoded, which takes time and memory.
func (b *Batch) enqueue(r *request, o TextOptions) error {
	if err := b.reserve(o.Warn); err != nil {
		return err
	}
	err := b.read(r, o)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading--
	switch {
	case err != nil:
		return err
	case b.closed:
		return b.gone()
	}
	b.waiting = append(b.waiting, r)
	b.notify()
	return nil
}

// read encodes the prompt of a text, beside few others.
func (b *Batch) read(r *request, o TextOptions) (err error) {
	defer func() {
		if v := recover(); v != nil { // the place must not be lost
			err = fmt.Errorf("encode the prompt: panic: %v\n%s", v, debug.Stack())
		}
	}()
	select {
	case b.encoding <- struct{}{}:
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-b.done:
		return b.gone()
	}
	defer func() { <-b.encoding }()
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	r.text, err = newWriting(b.model(), o, r.add)
	return err
}

// gone is the error of a closed batch.
func (b *Batch) gone() error { return fmt.Errorf("generate with %s: %w", b.From(), fs.ErrClosed) }

func (b *Batch) reserve(warn func(string)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.model().WarnOnce(warn)
	err := b.full()
	if err == nil {
		b.reading++
	}
	return err
}

// full says why no further text can wait. mu is held.
func (b *Batch) full() error {
	switch {
	case b.closed:
		return b.gone()
	case len(b.waiting)+b.reading+b.stats.Running >= b.o.Waiting+b.o.Texts: // those that are about to join don't wait
		return fmt.Errorf("%w: %d, the limit; try again later", ErrBusy, b.o.Waiting)
	}
	return nil
}

func (b *Batch) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// loop generates the texts, all by a token at a time.
func (b *Batch) loop() {
	defer close(b.done)
	var running []*request
	for {
		closed := b.admit(&running)
		switch {
		case closed:
			for _, r := range running {
				b.end(r, fs.ErrClosed)
			}
			return
		case len(running) == 0:
			<-b.wake
			continue
		}
		err := b.group.step()
		running = slices.DeleteFunc(running, func(r *request) bool {
			switch {
			case err != nil:
				b.end(r, err)
			case r.in.err != nil:
				b.end(r, r.in.err)
			case r.in.ended:
				b.end(r, nil)
			case r.ctx.Err() != nil:
				b.end(r, context.Cause(r.ctx))
			default:
				return false
			}
			return true
		})
	}
}

// admit lets waiting texts join, in their order, up to the limit. One for which there is no memory waits until others have
// ended. It reports whether the batch is closed; then nothing waits.
func (b *Batch) admit(running *[]*request) (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(r *request) bool {
		left := r.ctx.Err() != nil
		if left {
			r.finish(context.Cause(r.ctx))
		}
		return left
	})
	for len(b.waiting) > 0 && len(*running) < b.o.Texts && !b.closed {
		r := b.waiting[0]
		if r == b.refused {
			break
		}
		b.mu.Unlock()
		var err error
		r.in, err = b.group.add(r.text)
		b.mu.Lock()
		if err != nil && errors.Is(err, ErrMemory) && len(*running) > 0 {
			b.refused = r
			break
		}
		b.waiting = b.waiting[1:]
		if err != nil {
			r.finish(err)
			continue
		}
		*running = append(*running, r)
		b.stats.Running = len(*running)
	}
	if b.closed {
		for _, r := range b.waiting {
			r.finish(fs.ErrClosed)
		}
		b.waiting = nil
	}
	return b.closed
}

// end ends a text of the group.
func (b *Batch) end(r *request, err error) {
	b.group.remove(r.in)
	b.refused = nil
	report := r.text.window.report
	b.mu.Lock()
	b.stats.Running--
	b.stats.Texts++
	b.stats.PromptTokens += uint64(report.PromptTokens)
	b.stats.Tokens += uint64(report.Tokens)
	b.mu.Unlock()
	r.finish(err)
}

func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

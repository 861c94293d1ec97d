package infer

import (
	"fmt"
	"slices"
	"sync"

	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// group is the texts that one decoder continues together. A text's tokens do not depend on the others: see
// stages.Decoder. One goroutine uses it.
type group struct {
	model   *trained.Model
	stream  tensorops.Stream
	decoder *stages.Decoder // nil: not made yet
	texts   []*grouped      // in the order in which they joined
}

// grouped is a text of a group.
type grouped struct {
	*writing
	sequence *stages.Sequence
	cache    int64 // bytes of its cache
	used     int   // the most positions that the cache has had
	err      error // why it can't continue
}

// add adds a text. Its cache has room for the prompt and the text after it. It checks the memory of the device, and reads
// the weights if they are not loaded yet.
func (g *group) add(w *writing) (*grouped, error) {
	m, cache := g.model, int64(0)
	err := m.CheckMemory(fmt.Sprintf("a cache of keys and values for %d positions", w.room()), g.promised(),
		func(s *tensorops.DryStream, st *stages.Stage) error {
			before := s.Memory().InUse
			dec, err := stages.NewDecoder(st)
			if err != nil {
				return err
			}
			q, err := dec.Add(w.room())
			if err == nil {
				cache = s.Memory().InUse - before
				_, err = q.Next(make([]int32, w.longest()))
			}
			return err
		})
	if err == nil {
		err = g.load()
	}
	if err != nil {
		return nil, err
	}
	t := &grouped{writing: w, cache: cache}
	if t.sequence, err = g.decoder.Add(w.room()); err != nil {
		return nil, err
	}
	g.texts = append(g.texts, t)
	if w.tokens == 0 {
		t.err = w.end(FinishLength)
	}
	return t, nil
}

// promised is the memory of the texts' caches that they have not written to yet.
func (g *group) promised() (n int64) {
	for _, t := range g.texts {
		n += int64(float64(t.cache) * (1 - float64(t.used)/float64(t.room())))
	}
	return n
}

// load reads the weights if they are not loaded yet.
func (g *group) load() (err error) {
	if g.decoder != nil {
		return nil
	}
	if g.model.Weights == nil {
		if g.model.Weights, err = g.model.Stage(g.stream); err != nil {
			return err
		}
	}
	g.decoder, err = stages.NewDecoderOn(g.model.Weights, g.stream)
	return err
}

// remove removes a text and frees its cache.
func (g *group) remove(t *grouped) {
	g.texts = slices.DeleteFunc(g.texts, func(other *grouped) bool { return other == t })
	t.sequence.Close()
}

// step lets the model read the next tokens of each text that has not ended, and continues those whose prompt it has read by a
// token. Long prompts are read in parts, so that they don't delay the other texts. The parts depend only on the prompt.
// An error is that of the whole group.
func (g *group) step() error {
	var feeds []stages.Feed
	var fed []*grouped
	left := limitStep
	for _, t := range g.texts {
		if t.ended || t.err != nil {
			continue
		}
		tokens, again := t.feed(t.sequence.Used())
		if again {
			t.sequence.Reset()
		}
		if len(tokens) > 1 {
			if left < min(len(tokens), limitStep) { // one that must not be read in parts may be longer than a step
				continue
			}
			left -= len(tokens)
		}
		feeds, fed = append(feeds, stages.Feed{Sequence: t.sequence, Tokens: tokens}), append(fed, t)
	}
	if len(feeds) == 0 {
		return nil
	}
	logits, err := g.decoder.Next(feeds...)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i, t := range fed {
		t.used = max(t.used, t.sequence.Used())
		if !t.read(len(feeds[i].Tokens)) {
			continue
		}
		if len(fed) == 1 {
			t.err = t.take(logits[i])
			continue
		}
		all.Go(func() { t.err = t.take(logits[i]) }) // to choose among a large vocabulary takes milliseconds
	}
	all.Wait()
	return nil
}

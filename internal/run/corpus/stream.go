package corpus

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/data"
)

// Limits of what a stream reads at a time.
const (
	limitBatchRows  = 1024
	limitBatchBytes = 4 << 20
)

// stream is documents that are read and encoded while the run trains on those before them. Their ids stay in a log on disk, so memory
// does not limit them, and a run that resumes reads only what it has not read before.
//
// The order is the files' own, shuffled in windows: within each window of so many sequences, the seed decides. So a sequence's place
// is a function of its number. A stream has no position that a checkpoint could hold.
type stream struct {
	log     *data.Log
	reader  *documentReader
	files   []string
	context int
	window  int64 // sequences
	refuse  bool  // documents that are too long
	key     rng.Key
	joined  bool  // all documents are texts, and sequences are windows of them joined
	skip    int64 // documents at the start that are validated on; ids, if joined

	filling sync.Mutex // guards what follows, and appending to log
	rows    *data.Rows
	failed  error // sticky
	docs    []data.Document
	numbers []int

	ahead   sync.WaitGroup // the goroutine that reads ahead
	reading atomic.Bool    // it runs
	closed  atomic.Bool

	mu      sync.Mutex
	before  []int64 // sequences before each window of records that is known; the last one ends the last window
	total   int64   // sequences in an epoch; 0: not known
	windows [3]recordWindow
	doc     data.Document
}

// recordWindow is the documents of a window that can be learned from.
type recordWindow struct {
	number int64
	kept   []int32 // from the window's first one
}

// openStream opens a part as a stream. fraction of its first window is kept for validation.
func (c *Data) openStream(cfg *config.Config, p *part, r *documentReader, fraction float64, accept func(data.Identity) error) (err error) {
	id, err := data.RawIdentity(p.files)
	if err != nil {
		return unreadable(err)
	}
	if err := accept(id); err != nil {
		return err
	}
	key, err := storedKey(id.SHA256, len(p.files), c.Tokenizer, []any{"stream", r.decides(), r.columns()})
	if err != nil {
		return err
	}
	log, err := c.kept.log(key, r.vocab())
	if err != nil {
		return err
	}
	s := &stream{log: log, reader: r, files: p.files, context: cfg.Model.Context, window: int64(cfg.Data.ShuffleWindow),
		refuse: cfg.Data.TooLong == "refuse", key: rng.NewKey(cfg.Run.Seed, rng.StringStream("window order")), before: []int64{0}}
	for i := range s.windows {
		s.windows[i].number = -1
	}
	p.train = s // closes the log
	if err := s.ensure(func(docs, _ int64) bool { return docs > 0 }); err != nil {
		return err
	}
	first, err := log.Entries(0, 1)
	if err != nil {
		return err
	}
	if len(first) == 0 {
		return fmt.Errorf("%w: the files have no documents", data.ErrEmpty)
	}
	s.joined = first[0].Text
	c.conversations = c.conversations || first[0].Talk
	if fraction > 0 {
		if p.val, err = s.validation(cfg, fraction); err != nil {
			return err
		}
	}
	_, err = s.Positions(0) // that there is a sequence at all
	c.Warnings = append(c.Warnings, r.warnings("the start of the stream", cfg.IsSet("data.special_tokens"))...)
	return err
}

// validation takes a fraction of the first window.
func (s *stream) validation(cfg *config.Config, fraction float64) (*Data, error) {
	v := &Data{Tokenizer: s.reader.tok}
	if s.joined {
		want := s.window * int64(s.context)
		if err := s.ensure(func(_, ids int64) bool { return ids > want }); err != nil {
			return nil, err
		}
		_, ids, _ := s.log.Len()
		n := max(int64(float64(min(ids, want))*fraction), int64(s.context)+1)
		if n >= ids {
			return nil, data.CheckLength(ids-n, s.context)
		}
		val := make([]int32, n)
		s.skip, v.Val = n, data.NewTokens(val)
		return v, s.log.Joined(val, 0)
	}
	if err := s.ensure(func(docs, _ int64) bool { return docs >= s.window }); err != nil {
		return nil, err
	}
	docs, _, _ := s.log.Len()
	docs = min(docs, s.window)
	if s.skip = max(1, int64(float64(docs)*fraction)); s.skip >= docs {
		return nil, fmt.Errorf("%w: there are %d documents, of which %d are to validate on", data.ErrTooShort, docs, s.skip)
	}
	all := make([]data.Document, 0, s.skip)
	for at := int64(0); at < s.skip; {
		entries, err := s.log.Entries(at, s.skip-at)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			var d data.Document
			if err := s.log.Read(e, &d); err != nil {
				return nil, err
			}
			d.File = s.files[min(e.File, len(s.files)-1)]
			all = append(all, d)
		}
		at += int64(len(entries))
	}
	held, err := data.HoldDocuments(all, s.reader.vocab())
	if err != nil {
		return nil, err
	}
	v.ValRecords, _, err = fit(held, s.context, cfg.Data.TooLong)
	return v, err
}

// ensure reads documents until there are enough, or no more.
func (s *stream) ensure(enough func(docs, ids int64) bool) error {
	for {
		docs, ids, complete := s.log.Len()
		if complete || enough(docs, ids) {
			return nil
		}
		if err := s.more(docs); err != nil {
			return err
		}
	}
}

// readAhead reads documents on a goroutine of its own.
func (s *stream) readAhead(enough func(docs, ids int64) bool) {
	if docs, ids, complete := s.log.Len(); complete || enough(docs, ids) || !s.reading.CompareAndSwap(false, true) {
		return
	}
	s.ahead.Go(func() {
		defer s.reading.Store(false)
		_ = s.ensure(func(docs, ids int64) bool { return s.closed.Load() || enough(docs, ids) }) // whoever needs them gets the error
	})
}

// more reads, encodes and appends a batch, unless there are more than have documents already.
func (s *stream) more(have int64) error {
	s.filling.Lock()
	defer s.filling.Unlock()
	if docs, _, complete := s.log.Len(); docs > have || complete {
		return nil
	}
	if s.failed == nil {
		s.failed = s.batch()
	}
	return s.failed
}

func (s *stream) batch() (err error) {
	if s.rows == nil {
		file, row := s.log.Last()
		if s.rows, err = data.OpenRows(s.files, s.reader.columns(), file, row); err != nil {
			return unreadable(err)
		}
	}
	type line struct {
		row  data.Row
		text []byte
	}
	var lines []line
	ended := false
	for bytes := 0; len(lines) < limitBatchRows && bytes < limitBatchBytes; {
		row, err := s.rows.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			ended = true
			break
		}
		if err != nil {
			return unreadable(err)
		}
		lines = append(lines, line{row, append([]byte(nil), row.Line...)})
		bytes += len(row.Line)
	}
	s.docs, s.numbers = make([]data.Document, len(lines)), make([]int, len(lines))
	errs := make([]error, len(lines))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(lines)) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(lines) {
					return
				}
				s.docs[i], errs[i] = s.reader.read(lines[i].text)
				s.docs[i].Row, s.numbers[i] = lines[i].row.Row, lines[i].row.File
			}
		})
	}
	workers.Wait()
	if have, _, _ := s.log.Len(); have == 0 && len(lines) > 0 { // openStream waits for it
		s.joined = errs[0] == nil && s.docs[0].Text
	}
	for i, err := range errs {
		if err == nil && s.joined && !s.docs[i].Text {
			err = errors.New("the stream starts with texts, which are joined, and this is a prompt or a conversation; make it a source of its own")
		}
		if err != nil {
			return fmt.Errorf("%s, row %d: %w", data.Plain(s.files[lines[i].row.File]), lines[i].row.Row, err)
		}
	}
	if err := s.log.Append(s.docs, s.numbers); err != nil {
		return err
	}
	if ended {
		s.rows.Close()
		return s.log.Finish()
	}
	return nil
}

// Positions returns the length of a sequence.
func (s *stream) Positions(n int64) (int, error) {
	if s.joined {
		_, err := s.place(n)
		return s.context, err
	}
	e, err := s.record(n)
	return min(e.Len, s.context+1) - 1, err
}

// Fill reads a sequence.
func (s *stream) Fill(n int64, tokens, targets []int32) error {
	if s.joined {
		off, err := s.place(n)
		if err != nil {
			return err
		}
		ids := make([]int32, len(tokens)+1)
		if err := s.log.Joined(ids, off); err != nil {
			return err
		}
		copy(tokens, ids)
		copy(targets, ids[1:])
		return nil
	}
	e, err := s.record(n)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.log.Read(e, &s.doc); err != nil {
		return err
	}
	if want := min(e.Len, s.context+1) - 1; len(tokens) != want || len(targets) != want {
		return fmt.Errorf("got room for %d tokens and %d targets of a document with %d positions", len(tokens), len(targets), want)
	}
	copy(tokens, s.doc.IDs)
	for i := range targets {
		if targets[i] = s.doc.IDs[i+1]; !s.doc.Learn[i+1] {
			targets[i] = data.Masked
		}
	}
	return nil
}

// permuted returns the place in a window of size sequences of the place-th one.
func (s *stream) permuted(epoch, window, place, size int64) int64 {
	return int64(rng.Permute(s.key, uint64(epoch)<<40|uint64(window), uint64(place), uint64(size)))
}

// place returns where a window of the joined texts starts.
func (s *stream) place(n int64) (off int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := int64(0)
	if s.total > 0 {
		epoch, n = n/s.total, n%s.total
	}
	needs := func(windows int64) func(docs, ids int64) bool {
		want := s.skip + windows*s.window*int64(s.context) + 1
		return func(_, ids int64) bool { return ids >= want }
	}
	window := n / s.window
	if err := s.ensure(needs(window + 1)); err != nil {
		return 0, err
	}
	size := s.window
	if _, ids, complete := s.log.Len(); complete {
		s.total = max(ids-s.skip-1, 0) / int64(s.context)
		if s.total == 0 {
			return 0, data.CheckLength(ids-s.skip, s.context)
		}
		if n >= s.total {
			epoch, n = epoch+n/s.total, n%s.total
			window = n / s.window
		}
		size = min(size, s.total-window*s.window)
	} else {
		s.readAhead(needs(window + 2))
	}
	return s.skip + (window*s.window+s.permuted(epoch, window, n%s.window, size))*int64(s.context), nil
}

// record returns the entry of a sequence that is a document.
func (s *stream) record(n int64) (e data.Entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.total == 0 && n >= s.before[len(s.before)-1] {
		if err := s.addWindow(); err != nil {
			return e, err
		}
	}
	epoch := int64(0)
	if s.total > 0 {
		epoch, n = n/s.total, n%s.total
	}
	window := int64(sort.Search(len(s.before)-1, func(w int) bool { return s.before[w+1] > n }))
	kept, err := s.keptOf(window)
	if err != nil {
		return e, err
	}
	place := s.permuted(epoch, window, n-s.before[window], int64(len(kept)))
	all, err := s.log.Entries(s.skip+window*s.window+int64(kept[place]), 1)
	if err != nil {
		return e, err
	}
	if s.total == 0 {
		want := s.skip + (window+2)*s.window
		s.readAhead(func(docs, _ int64) bool { return docs >= want })
	}
	return all[0], nil
}

// addWindow counts the sequences of the next window, or finds that there is none.
func (s *stream) addWindow() error {
	number := int64(len(s.before) - 1)
	from := s.skip + number*s.window
	if err := s.ensure(func(docs, _ int64) bool { return docs >= from+s.window }); err != nil {
		return err
	}
	known := s.before[number]
	if docs, _, _ := s.log.Len(); docs <= from {
		if s.total = known; known == 0 {
			return fmt.Errorf("%w: none of the %d documents has a token to learn within the context of %d tokens", data.ErrTooShort, docs, s.context)
		}
		return nil
	}
	kept, err := s.keptOf(number)
	if err == nil {
		s.before = append(s.before, known+int64(len(kept)))
	}
	return err
}

// keptOf returns the documents of a window that have a token to learn within the context.
func (s *stream) keptOf(number int64) ([]int32, error) {
	w := &s.windows[number%int64(len(s.windows))]
	if w.number == number {
		return w.kept, nil
	}
	w.number, w.kept = -1, w.kept[:0]
	from := s.skip + number*s.window
	for at := from; at < from+s.window; {
		entries, err := s.log.Entries(at, from+s.window-at)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			break
		}
		for i, e := range entries {
			if s.refuse && e.Len > s.context+1 {
				return nil,
					fmt.Errorf("%s, row %d: the document has %d tokens, but the limit is %d for a context of %d; raise model.context, or set data.too_long = \"cut\"",
						data.Plain(s.files[min(e.File, len(s.files)-1)]), e.Row, e.Len, s.context+1, s.context)
			}
			if e.First > 0 && e.First <= s.context {
				w.kept = append(w.kept, int32(at-from)+int32(i))
			}
		}
		at += int64(len(entries))
	}
	w.number = number
	return w.kept, nil
}

// Size says how much has been read.
func (s *stream) Size() (sequences, documents, tokens int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	documents, tokens, _ = s.log.Len()
	return s.total, documents, tokens
}

// Close ends reading ahead and closes the log, which stays for the next start.
func (s *stream) Close() error {
	s.closed.Store(true)
	s.ahead.Wait()
	s.filling.Lock()
	defer s.filling.Unlock()
	if s.rows != nil {
		s.rows.Close()
	}
	return s.log.Close()
}

package samples

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/troupe-ml/troupe/internal/data"
)

// Stream is data without a known length, read one sample after the other. Only one goroutine at a
// time uses it.
type Stream interface {
	// Fields describes the samples. It always returns the same fields.
	Fields() []Field
	// Next returns the next sample, which must not be changed later; io.EOF: there are no more.
	Next() (Sample, error)
	// Close frees the stream.
	Close() error
}

// OpenStream opens a stream after the given number of samples. A stream that can't be opened at a
// position is opened only at 0.
type OpenStream func(position int64) (Stream, error)

// StreamSource gives a run the samples of a stream: sample n of the run is sample n of the stream.
//
// Samples should be requested in ascending order. It keeps the last ones (limitStreamAhead), so
// these can be requested again and in another order. A request for another sample succeeds if the
// stream can be opened there, and otherwise fails with ErrPosition. It is safe for concurrent use.
type StreamSource struct {
	open     OpenStream
	seekable bool
	fields   []Field

	mu     sync.Mutex
	stream Stream       // nil: not open
	next   int64        // number of the stream's next sample
	broken error        // the error after which the stream returns no more samples
	kept   []keptSample // the samples before next
	bytes  int64        // size of the kept samples
	closed bool
}

type keptSample struct {
	sample Sample
	bytes  int64
}

// NewStreamSource opens a stream at 0 to learn its fields. seekable says that the stream can be
// opened at any position and always has the same samples. A run with another stream can't resume
// from a checkpoint.
func NewStreamSource(open OpenStream, seekable bool) (*StreamSource, error) {
	s := &StreamSource{open: open, seekable: seekable}
	if err := s.reopen(0); err != nil {
		return nil, err
	}
	s.fields = s.stream.Fields()
	if err := CheckFields(s.fields); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Fields describes the samples.
func (s *StreamSource) Fields() []Field { return s.fields }

// Seekable reports whether the stream can be opened at any position.
func (s *StreamSource) Seekable() bool { return s.seekable }

// Start prepares to read from a position, such as that of a checkpoint: the number of samples that
// were read before.
func (s *StreamSource) Start(position int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.next - int64(len(s.kept)); s.stream != nil && position >= first && position <= s.next {
		return nil
	}
	return s.seek(position)
}

// Sample returns a sample of the run. An error names the sample's number, and wraps ErrEnded if the
// stream has ended.
func (s *StreamSource) Sample(number int64) (Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sample, err := s.sample(number)
	if err != nil {
		return nil, fmt.Errorf("sample %d of the stream: %w", number, err)
	}
	return sample, nil
}

func (s *StreamSource) sample(number int64) (Sample, error) {
	first := s.next - int64(len(s.kept))
	if number >= first && number < s.next {
		return s.kept[number-first].sample, nil
	}
	// A stream that starts with a request for another position belongs to a resumed run.
	near := number >= s.next && number-s.next < limitStreamAhead && (number == s.next || len(s.kept) > 0)
	if s.stream == nil || !near {
		if err := s.seek(number); err != nil {
			return nil, err
		}
	}
	for {
		sample, err := s.read()
		if err != nil {
			return nil, err
		}
		if s.next > number {
			return sample, nil
		}
	}
}

// seek opens the stream again.
func (s *StreamSource) seek(position int64) error {
	switch {
	case s.closed:
		return errors.New("the stream was closed")
	case position < 0:
		return fmt.Errorf("%w: position %d does not exist", ErrPosition, position)
	case s.seekable:
		return s.reopen(position)
	case s.broken != nil:
		return s.broken
	}
	return fmt.Errorf("%w: the stream is at sample %d and cannot be opened at sample %d, so this run cannot resume from a checkpoint: use a stream that can be opened at a position, or start a new run", ErrPosition, s.next, position)
}

func (s *StreamSource) reopen(position int64) error {
	if err := s.shut(); err != nil {
		return fmt.Errorf("closing the stream at sample %d: %w", s.next, err)
	}
	stream, err := s.open(position)
	if err == nil && stream == nil {
		err = errors.New("the function that opens it returned nil")
	}
	if err != nil {
		return fmt.Errorf("opening the stream at sample %d: %w", position, err)
	}
	s.stream, s.next, s.kept, s.bytes, s.broken = stream, position, nil, 0, nil
	return nil
}

// read takes the next sample. After an error the stream returns no more samples; a seekable one is
// opened again at the next request.
func (s *StreamSource) read() (Sample, error) {
	sample, err := s.stream.Next()
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w after %d samples: train for fewer steps, or provide more data", ErrEnded, s.next)
	}
	if err == nil {
		err = CheckSample(s.fields, sample)
	}
	if err != nil {
		s.broken = fmt.Errorf("reading sample %d: %w", s.next, err)
		return nil, errors.Join(s.broken, s.shut())
	}
	var bytes int64
	for _, a := range sample {
		bytes += int64(len(a.Bytes()))
	}
	s.kept, s.bytes, s.next = append(s.kept, keptSample{sample, bytes}), s.bytes+bytes, s.next+1
	for len(s.kept) > 1 && (len(s.kept) > limitStreamAhead || s.bytes > limitStreamAheadBytes) {
		s.bytes -= s.kept[0].bytes
		s.kept[0] = keptSample{} // free the sample that is dropped
		s.kept = s.kept[1:]
	}
	return sample, nil
}

func (s *StreamSource) shut() error {
	stream := s.stream
	if s.stream = nil; stream == nil {
		return nil
	}
	return stream.Close()
}

// Identity returns the stream's own identity if it is an Identifier; ok reports whether it is.
func (s *StreamSource) Identity() (id data.Identity, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own, is := s.stream.(Identifier); is {
		return own.Identity(), true
	}
	return data.Identity{}, false
}

// Close closes the stream; afterwards it returns no samples.
func (s *StreamSource) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.shut()
}

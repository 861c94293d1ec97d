package beat

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
)

// stream is one end of a stream of beats.
type stream struct {
	conn net.Conn
	in   *bufio.Reader

	mu     sync.Mutex // guards writes, number and sent
	number uint64
	sent   [sentBeats]time.Time // when the last beats were sent, by number
	clock  *Clock
	wall   func() time.Time
	awake  *clock.Awake
}

func newStream(conn net.Conn, c *Clock, wall func() time.Time, awake *clock.Awake) *stream {
	return &stream{conn: conn, in: bufio.NewReader(conn), clock: c, wall: wall, awake: awake}
}

// beat sends a beat with its number and time.
func (s *stream) beat(b *wire.Beat, within time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.sent[s.number%sentBeats] = time.Now()
	b.Number, b.SentNs = s.number, s.wall().UnixNano()
	return s.write(b, within)
}

func (s *stream) write(b *wire.Beat, within time.Duration) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	return wire.WriteFrame(s.conn, b, LimitBeatBytes)
}

// read returns the other end's next beat and answers it. Answers to this end's beats update the
// clock. Every beat or answer calls heard.
func (s *stream) read(within time.Duration, heard func()) (*wire.Beat, error) {
	for {
		if err := s.await(within); err != nil {
			return nil, err
		}
		b := &wire.Beat{}
		if err := wire.ReadFrame(s.in, b, LimitBeatBytes); err != nil {
			return nil, err
		}
		now := s.wall()
		if b.GetAnswer() {
			if took, ok := s.took(b.GetNumber()); ok {
				s.clock.add(now, took, time.Unix(0, b.GetCameNs()), time.Unix(0, b.GetSentNs()))
			}
			heard()
			continue
		}
		heard()
		s.mu.Lock()
		err := s.write(&wire.Beat{Number: b.GetNumber(), Answer: true, EchoNs: b.GetSentNs(), CameNs: now.UnixNano(),
			SentNs: s.wall().UnixNano()}, within)
		s.mu.Unlock()
		return b, err
	}
}

// await waits for the other end's next frame, for a time awake: after a freeze of this process the deadline has passed,
// although the frames that came meanwhile are still to be read.
func (s *stream) await(within time.Duration) error {
	for began := time.Now(); ; {
		if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		_, err := s.in.Peek(1)
		if err == nil {
			return s.conn.SetReadDeadline(time.Now().Add(within))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || s.awake.Since(began) >= within {
			return err
		}
	}
}

// took returns how long ago one of this end's last beats was sent.
func (s *stream) took(number uint64) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == 0 || number > s.number || s.number-number >= sentBeats {
		return 0, false
	}
	return time.Since(s.sent[number%sentBeats]), true
}

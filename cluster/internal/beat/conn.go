package beat

import (
	"bufio"
	"net"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/internal/wire"
)

// stream is one end of a stream of beats.
type stream struct {
	conn net.Conn
	in   *bufio.Reader

	mu     sync.Mutex // of what is written, and of number
	number uint64
	clock  *Clock
	now    func() time.Time
}

func newStream(conn net.Conn, c *Clock, now func() time.Time) *stream {
	return &stream{conn: conn, in: bufio.NewReader(conn), clock: c, now: now}
}

// beat sends a beat.
func (s *stream) beat(status []*wire.StatusReply, goodbye bool, within time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	return s.write(&wire.Beat{Number: s.number, Status: status, Goodbye: goodbye, SentNs: s.now().UnixNano()}, within)
}

func (s *stream) write(b *wire.Beat, within time.Duration) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	return wire.WriteFrame(s.conn, b, LimitBeatBytes)
}

// read returns the next beat of the other end, and answers it. Answers to own beats set
// the clock, and are told by heard.
func (s *stream) read(within time.Duration, heard func()) (*wire.Beat, error) {
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
			return nil, err
		}
		b := &wire.Beat{}
		if err := wire.ReadFrame(s.in, b, LimitBeatBytes); err != nil {
			return nil, err
		}
		now := s.now()
		if b.GetAnswer() {
			s.clock.add(time.Unix(0, b.GetEchoNs()), time.Unix(0, b.GetCameNs()), time.Unix(0, b.GetSentNs()), now)
			heard()
			continue
		}
		heard()
		s.mu.Lock()
		err := s.write(&wire.Beat{Number: b.GetNumber(), Answer: true, EchoNs: b.GetSentNs(), CameNs: now.UnixNano(), SentNs: s.now().UnixNano()}, within)
		s.mu.Unlock()
		return b, err
	}
}

package lane

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

func dialFunc(dial func() net.Conn) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) { return dial(), nil }
}

func FuzzHandshake(f *testing.F) {
	h := hello{flags: flagOffer, from: ID{1}, to: ID{2}, session: 3, stream: 1, streams: 2, offer: "@troupe-lane-x"}
	w := welcome{self: ID{1}, answer: refusedFull}
	f.Add(h.append(nil))
	f.Add(w.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil {
			if again, err := readHello(bytes.NewReader(h.append(nil))); err != nil || again != h {
				t.Errorf("%+v comes back as %+v, %v", h, again, err)
			}
		}
		if w, err := readWelcome(bytes.NewReader(b)); err == nil {
			if again, err := readWelcome(bytes.NewReader(w.append(nil))); err != nil || again != w {
				t.Errorf("%+v comes back as %+v, %v", w, again, err)
			}
		}
	})
}

func FuzzPrefix(f *testing.F) {
	for _, p := range []prefix{
		{kind: kindData, seq: 1, total: 10, length: 10, parts: 1},
		{kind: kindData, flags: flagStriped, seq: 2, total: 3 * LimitPiece, offset: LimitPiece, length: LimitPiece, headerBytes: 5, parts: 2},
		{kind: kindSkip, seq: 3},
		{kind: kindAck, seq: 4, parts: 2},
	} {
		f.Add(append(p.append(nil), 10, 0, 0, 0, 0, 0, 0, 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, again prefix
		if len(b) < prefixBytes || p.parse(b[:prefixBytes]) != nil {
			return
		}
		if err := again.parse(p.append(nil)); err != nil || again != p {
			t.Errorf("%+v comes back as %+v, %v", p, again, err)
		}
		if p.metaBytes() > LimitHeaderBytes+LimitParts*lenBytes || p.total > LimitPayloadBytes || p.length > p.total ||
			p.offset > p.total-p.length {
			t.Errorf("a length beyond its limit: %+v", p)
		}
		rest := b[prefixBytes:]
		lens, err := parseLens(nil, rest[:len(rest)/lenBytes*lenBytes], p.total)
		sum := 0
		for _, n := range lens {
			if n < 0 {
				t.Errorf("a length of %d", n)
			}
			sum += n
		}
		if err == nil && uint64(sum) != p.total {
			t.Errorf("lengths of %d in a payload of %d", sum, p.total)
		}
	})
}

// FuzzStream: whatever a peer sends after its handshake, the node keeps working and takes no more memory than the peer requests.
func FuzzStream(f *testing.F) {
	piece := prefix{kind: kindData, flags: flagStriped, seq: 2, group: ID{1}, total: 2*LimitPiece - 1, offset: LimitPiece,
		length: LimitPiece - 1, parts: 1}
	skip := prefix{kind: kindSkip, seq: 2}
	f.Add(append(dataFrame(1, ID{1}, []byte("h"), 3), 1, 2, 3))
	f.Add(append(append(dataFrame(1, ID{7}, nil, 2), 1, 2), skip.append(nil)...))
	f.Add(piece.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := New(Config{Self: idOf("b"), NoSharedMemory: true})
		taken, ended := 0, 0
		n.Open(ID{1}, func(_ ID, header []byte, lens []int) ([][]byte, func(error), error) {
			sum := 0
			parts := make([][]byte, len(lens))
			for k, size := range lens {
				if sum += size; sum > 4<<20 {
					return nil, nil, errors.New("too long for this test")
				}
				parts[k] = make([]byte, size)
			}
			taken++
			return parts, func(error) { ended++ }, nil
		})
		there, here := net.Pipe()
		accepted := make(chan struct{})
		go func() { n.Accept(here, nil); close(accepted) }()
		go func() { // reads what the node answers
			var waste [4096]byte
			for {
				if _, err := there.Read(waste[:]); err != nil {
					return
				}
			}
		}()
		h := helloTo(n, 1)
		_ = there.SetWriteDeadline(time.Now().Add(patience))
		_, _ = there.Write(append(h.append(nil), b...))
		_ = there.Close()
		<-accepted
		n.Close()
		if taken != ended {
			t.Errorf("%d messages were taken, %d ended", taken, ended)
		}
	})
}

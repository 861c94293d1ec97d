package transport

import (
	"context"
	"net"
	"time"
)

// connect opens a TCP connection. The first packet of one may be lost, and systems wait a second, then
// three, until they send it again: behind a short break of the network that is much. So another
// attempt begins beside the first after connectAgain, and after twice the time a third one, up to
// LimitAttempts; the first that stands is taken.
func connect(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, LimitAttempts)
	begin := func() {
		go func() { // ends with ctx
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			results <- result{conn, err}
		}()
	}
	begin()
	running, begun, pause := 1, 1, connectAgain
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		select {
		case r := <-results:
			running--
			if r.err != nil && running > 0 {
				continue
			}
			cancel()
			go func() { // ends with the others, which ctx ends
				for range running {
					if late := <-results; late.conn != nil {
						_ = late.conn.Close()
					}
				}
			}()
			return r.conn, r.err
		case <-again.C:
			if begun < LimitAttempts {
				begin()
				running, begun, pause = running+1, begun+1, 2*pause
				again.Reset(pause)
			}
		}
	}
}

package transport

import (
	"context"
	"net"
	"time"
)

// connect opens a TCP connection. If the first packet is lost, systems wait one second, then three,
// before they resend it, which is long after a short break of the network. So connect starts another
// try in parallel after connectAgain, a third after twice that time, up to LimitAttempts. The first
// connection that opens is used.
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
			go func() { // ends with the other tries, which ctx ends
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

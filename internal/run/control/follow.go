package control

import (
	"net"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// follow sends the events of the run to a client until its end, or until the client disconnects.
func (s *Server) follow(c *net.UnixConn) {
	events := s.run.Subscribe()
	defer events.Close()
	s.mu.Lock()
	s.clients[c] = true
	s.mu.Unlock()
	left := make(chan struct{})
	s.wait.Add(1)
	go func() { // ends when the client disconnects, or with c
		defer s.wait.Done()
		defer close(left)
		_ = c.SetReadDeadline(time.Time{})
		_, _ = c.Read(make([]byte, 1)) // a client that follows has nothing to say
		_ = c.Close()                  // serve does so, too
	}()
	tell := func(e event.Event) bool {
		return c.SetWriteDeadline(time.Now().Add(writeTime)) == nil && send(c, e) == nil
	}
	if !tell(event.StartEvent{Info: s.run.Info()}) {
		return
	}
	for {
		select {
		case e, more := <-events.Events():
			if !more {
				select {
				case <-s.ended:
					tell(s.end)
				case <-left:
				}
				return
			}
			if !tell(e) {
				return
			}
		case <-left:
			return
		}
	}
}

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Run is a run that clients see and steer; *troupe.Run is one.
type Run interface {
	Info() event.Info
	Status() event.Status
	Change(event.Change) error
	Kill()
	Subscribe() *event.Subscription
}

// Server serves the clients of a run.
type Server struct {
	run      Run
	listener *net.UnixListener
	path     string
	file     fs.FileInfo // of the socket
	events   *event.Subscription
	watched  chan struct{}  // closed when the run sends no more events
	wait     sync.WaitGroup // for its goroutines
	shut     sync.Once
	over     chan struct{}  // closed by Shut
	ended    chan struct{}  // closed by Close
	end      event.EndEvent // valid when ended is closed

	mu      sync.Mutex
	state   State
	clients map[net.Conn]bool // true: it follows the run
}

// Listen makes the socket of a run and serves clients until Close, which closes events too. dir is the run's folder, which this process
// has locked. events must have been subscribed before the run's first step: the server's state is made from them.
func Listen(dir string, run Run, events *event.Subscription) (*Server, error) {
	l, err := listen(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{run: run, listener: l, path: l.Addr().String(), events: events, over: make(chan struct{}),
		watched: make(chan struct{}),
		ended:   make(chan struct{}), clients: make(map[net.Conn]bool)}
	s.file, _ = os.Lstat(s.path)
	info := run.Info()
	s.state = State{ID: info.ID, Name: info.Name, Out: info.Out, PID: os.Getpid(), Began: clock.Now(), Step: info.ResumedAt, Steps: info.Steps}
	s.wait.Add(2)
	go s.observe() // ends with the run's events
	go s.accept()  // ends with the listener
	return s, nil
}

// Path is the path of the socket.
func (s *Server) Path() string { return s.path }

// Shut removes the socket and disconnects the clients, except those that follow the run. Call it before the run's folder is unlocked:
// then another process may listen there.
func (s *Server) Shut() {
	if s == nil {
		return
	}
	s.shut.Do(func() {
		s.mu.Lock()
		close(s.over)
		for c, follows := range s.clients {
			if !follows {
				_ = c.Close() // its handler ends
			}
		}
		s.mu.Unlock()
		_ = s.listener.Close() // accept ends
		removeSocket(s.path, s.file)
	})
}

// Close ends the server. Clients that follow the run get its end. The run's subscriptions must be closed.
func (s *Server) Close(end event.EndEvent) {
	if s == nil {
		return
	}
	s.Shut()
	s.end = end
	close(s.ended)
	late := time.AfterFunc(endTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.clients {
			_ = c.Close() // a follower that does not read
		}
	})
	defer late.Stop()
	s.wait.Wait()
}

// observe keeps the state.
func (s *Server) observe() {
	defer s.wait.Done()
	defer s.events.Close()
	defer close(s.watched)
	for e := range s.events.Events() {
		s.mu.Lock()
		switch e := e.(type) {
		case event.StepEvent:
			s.state.Step, s.state.LR = e.Step, finite(e.LR, s.state.LR)
			s.state.Loss, s.state.ValLoss = finite(e.Loss, s.state.Loss), finite(e.ValLoss, s.state.ValLoss)
			s.state.TokensPerS = finite(e.TokensPerS, s.state.TokensPerS)
		case event.CheckpointEvent:
			if !e.Weights { // the run does not resume from it
				s.state.Checkpoint = e.Dir
			}
		case event.RestartEvent:
			s.state.Restarts++
		}
		s.mu.Unlock()
	}
}

// finite returns a number that JSON can have: now, else before.
func finite(now, before *float64) *float64 {
	switch {
	case now == nil:
		return before
	case math.IsNaN(*now) || math.IsInf(*now, 0):
		return nil
	}
	return now
}

// accept accepts clients.
func (s *Server) accept() {
	defer s.wait.Done()
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			select {
			case <-s.over:
				return
			case <-time.After(acceptTime): // the process has too many open files, for example
				continue
			}
		}
		if !s.admit(c) {
			continue
		}
		go s.serve(c) // ends with its client, or with Close
	}
}

// admit registers a client, or refuses it.
func (s *Server) admit(c *net.UnixConn) bool {
	var why string
	if uid, known := peer(c); known && uid != os.Getuid() && uid != 0 {
		why = fmt.Sprintf("the run belongs to the user %s", userName(os.Getuid()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
		_ = c.Close()
		return false
	default:
	}
	busy := len(s.clients) >= LimitClients
	if busy {
		why = fmt.Sprintf("%d clients are connected to the run, the limit: try again later", LimitClients)
	}
	if why != "" {
		// The line is short and the connection new, so the write does not wait.
		_ = c.SetWriteDeadline(time.Now().Add(acceptTime))
		_ = send(c, answer{Version: version, Error: why, Busy: busy})
		_ = c.Close()
		return false
	}
	s.clients[c] = false
	s.wait.Add(1)
	return true
}

// serve answers a client's requests.
func (s *Server) serve(c *net.UnixConn) {
	defer s.wait.Done()
	defer func() {
		s.mu.Lock()
		delete(s.clients, c)
		s.mu.Unlock()
		_ = c.Close()
	}()
	in := bufio.NewReaderSize(c, limitRequestBytes)
	var long []byte
	for {
		if c.SetReadDeadline(time.Now().Add(idleTime)) != nil {
			return
		}
		line, err := readLine(in, limitRequestBytes, &long)
		if errors.Is(err, errTooLong) {
			_ = s.reply(c, err) // the connection ends anyway
		}
		if err != nil {
			return
		}
		q, err := parseRequest(line)
		switch {
		case err != nil:
		case q.Op == opFollow:
			s.follow(c)
			return
		case q.Op == opKill:
			s.run.Kill()
		case q.Op == opChange:
			err = s.change(*q.Change)
		}
		if s.reply(c, err) != nil || err != nil {
			return
		}
	}
}

// change makes a change. Where the run says whether it accepts one, change waits for that.
func (s *Server) change(c event.Change) error {
	events := s.run.Subscribe()
	defer events.Close()
	if err := s.run.Change(c); err != nil {
		return err
	}
	if c.Step == 0 && c.Kind != event.ChangeRate {
		return nil // never refused, and no event follows
	}
	timeout := time.NewTimer(changeTime)
	defer timeout.Stop()
	for {
		select {
		case e, more := <-events.Events():
			if !more {
				return errors.New("the run has ended")
			}
			if a, ok := e.(event.ChangeEvent); ok && answers(a, c) {
				return a.Err
			}
		case <-timeout.C: // the run is between two attempts; the next one gets the request
			return nil
		case <-s.over:
			return errors.New("the run has ended")
		}
	}
}

// answers reports whether an event says that the run has accepted or refused a change. Another client may have requested another one
// of its kind: an accepted change may have a later step, a refused one is unchanged.
func answers(e event.ChangeEvent, c event.Change) bool {
	if e.Err != nil {
		return e.Change == c
	}
	return e.Kind == c.Kind && e.LR == c.LR && (c.Step == 0 || e.Step >= c.Step)
}

// reply sends the state, or why a request was refused.
func (s *Server) reply(c net.Conn, refused error) error {
	a := answer{Version: version}
	if refused != nil {
		a.Error = refused.Error()
	} else {
		actors := s.run.Status()
		s.mu.Lock()
		state := s.state
		for _, follows := range s.clients {
			if follows {
				state.Followers++
			}
		}
		s.mu.Unlock()
		state.Actors = actors
		a.State = &state
	}
	if err := c.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	return send(c, a)
}

// send writes a value as a line.
func send(c net.Conn, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.Write(append(text, '\n'))
	return err
}

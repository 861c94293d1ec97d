package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// apiProtocol is the name of the streams that carry the requests of operators and viewers, and
// apiVersion the version of these requests.
const (
	apiProtocol = "api"
	apiVersion  = 1
)

// answerer answers one request.
type answerer struct {
	c    *Coordinator
	peer transport.Peer
	conn net.Conn
	ctx  context.Context // ends with the stream

	mu sync.Mutex // held while a reply is written
}

// serveAPI answers the request of a stream.
func (c *Coordinator) serveAPI(conn net.Conn, p transport.Peer) {
	defer conn.Close() //nolint:errcheck // it has ended
	var r wire.ApiRequest
	err := conn.SetReadDeadline(time.Now().Add(requestTime))
	if err == nil {
		err = wire.ReadFrame(conn, &r, limitRequestBytes)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		c.log.Warn("can't read a request", "name", p.Name, "from", p.Address, "err", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() { // ends with the stream; the client sends nothing more
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn)
		cancel()
	}()
	a := &answerer{c: c, peer: p, conn: conn, ctx: ctx}
	select {
	case <-c.up:
	case <-ctx.Done():
	}
	room := c.serving
	if r.GetFollow() != nil || r.GetLogs().GetFollow() {
		room = c.following
	}
	select {
	case room <- struct{}{}:
		err = a.answer(&r)
		<-room
	default:
		err = fmt.Errorf("%w: the coordinator already answers %d such requests, the limit", ErrTryAgain, cap(room))
	}
	if err != nil && ctx.Err() == nil {
		_ = a.write(&wire.ApiReply{Error: apiwire.PackError(err)})
	}
	cancel()
	_ = conn.Close()
	<-gone
}

// write sends a reply.
func (a *answerer) write(m *wire.ApiReply) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	return wire.WriteFrame(a.conn, m, limitReplyBytes)
}

// alive tells the client regularly that a reply will come. The returned function stops it.
func (a *answerer) alive() (stop func()) {
	ctx, cancel := context.WithCancel(a.ctx)
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if a.write(&wire.ApiReply{Kind: &wire.ApiReply_Alive{Alive: &wire.Alive{}}}) != nil {
					_ = a.conn.Close()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// tellWaits tells the client what a starting run waits for; the client does not have the run's id yet and can't follow
// it. The returned function stops it.
func (a *answerer) tellWaits(r *run) (stop func()) {
	_, f := r.follow(0)
	ctx, cancel := context.WithCancel(a.ctx)
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		for {
			select {
			case e, more := <-f.events:
				if !more {
					return
				}
				if text := e.GetWaiting().GetText(); text != "" {
					// alive detects a disconnected client
					_ = a.write(&wire.ApiReply{Kind: &wire.ApiReply_Alive{Alive: &wire.Alive{Waiting: text}}})
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		r.leave(f)
	}
}

var errNothing = fmt.Errorf("%w: it does not know this request; use the same build on both sides", ErrRequest)

// answer checks whether the client may make a request, and answers it.
func (a *answerer) answer(r *wire.ApiRequest) error {
	if r.GetVersion() != apiVersion {
		return fmt.Errorf("%w: it speaks version %d of the protocol, the client version %d; use the same build on both sides", ErrRequest,
			apiVersion, r.GetVersion())
	}
	if role := pki.Role(a.peer.Role); !mayAsk(role, r) {
		if role == pki.Operator {
			return errNothing // an operator may make every request, so this is an unknown one
		}
		a.c.log.Warn("refused a request", "name", a.peer.Name, "role", a.peer.Role, "request", fmt.Sprintf("%T", r.Kind))
		return fmt.Errorf("%w: %s has the role %s, which may only watch; create an operator's token with engine cluster token --role operator",
			ErrForbidden, a.peer.Name, a.peer.Role)
	}
	return a.dispatch(r)
}

func (a *answerer) dispatch(r *wire.ApiRequest) error {
	switch k := r.Kind.(type) {
	case *wire.ApiRequest_Submit:
		return a.submit(k.Submit)
	case *wire.ApiRequest_Follow:
		return a.follow(k.Follow)
	case *wire.ApiRequest_List:
		reply := &wire.ListReply{}
		for _, r := range a.c.runs.list() {
			reply.Runs = append(reply.Runs, r.summary())
		}
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_List{List: reply}})
	case *wire.ApiRequest_Status:
		r, err := a.c.runs.find(k.Status.GetRun())
		if err != nil {
			return err
		}
		reply := apiwire.PackStatus(r.status())
		reply.Run = r.summary()
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Status{Status: reply}})
	case *wire.ApiRequest_Record:
		r, err := a.c.runs.find(k.Record.GetRun())
		if err == nil {
			err = r.record(k.Record.GetFollower(), time.Duration(k.Record.GetForNs()))
		}
		if err != nil {
			return err
		}
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Record{Record: &wire.RecordReply{}}})
	case *wire.ApiRequest_Actions:
		r, err := a.c.runs.find(k.Actions.GetRun())
		if err != nil {
			return err
		}
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Actions{Actions: r.actions()}})
	case *wire.ApiRequest_Forecast:
		return a.forecast(k.Forecast)
	case *wire.ApiRequest_Control:
		r, warning, err := a.c.runs.control(k.Control, a.peer.Name)
		if err != nil {
			return err
		}
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Control{Control: &wire.ControlReply{Run: r.summary(), Warning: warning}}})
	case *wire.ApiRequest_Logs:
		return a.logs(k.Logs)
	case *wire.ApiRequest_Tokens:
		return a.tokens(k.Tokens)
	case *wire.ApiRequest_Drain:
		if err := a.c.Drain(k.Drain.GetWorker()); err != nil {
			return err
		}
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Drain{Drain: &wire.DrainReply{}}})
	case *wire.ApiRequest_Members:
		return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Members{Members: a.c.packMembers()}})
	}
	return errNothing
}

func (a *answerer) submit(m *wire.SubmitRequest) error {
	if n := len(m.GetSets()); n > limitSets {
		return fmt.Errorf("%w: the request has %d --set values; the limit is %d", ErrRequest, n, limitSets)
	}
	if m.GetFromStep() < 0 {
		return fmt.Errorf("%w: step %d; want 0 or more", ErrRequest, m.GetFromStep())
	}
	stop := a.alive()
	stopWaits := func() {}
	r, err := a.c.runs.submit(a.ctx, Submission{Config: m.GetConfig(), File: m.GetFile(), Sets: m.GetSets(), Fresh: m.GetFresh(),
		FromStep:      int(m.GetFromStep()),
		AcceptNewData: m.GetAcceptNewData(), Queue: m.GetQueue(), Name: m.GetName(), registered: m.GetRegistered(), variables: m.GetVariables(),
		begins: func(r *run) { stopWaits = a.tellWaits(r) }}, a.peer.Name)
	stopWaits()
	stop()
	if err != nil {
		return err
	}
	return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Submit{Submit: &wire.SubmitReply{Id: r.id, Name: r.name,
		Queued: apiwire.Small(a.c.runs.position(r))}}})
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/locate"
	"github.com/troupe-ml/troupe/internal/wire"
)

// call is a request whose replies are being read.
type call struct {
	conn   net.Conn
	stop   func() bool
	notice func(text string) // gets what the reply waits for; may be nil
}

func (c *Client) call(ctx context.Context, r *wire.ApiRequest) (*call, error) {
	r.Version = apiVersion
	dialling, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	conn, err := dialCoordinator(dialling, c.at, c.root, c.keeper, apiProtocol)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, unreachable(err)
	}
	k := &call{conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	err = conn.SetWriteDeadline(time.Now().Add(writeTime))
	if err == nil {
		err = wire.WriteFrame(conn, r, limitRequestBytes)
	}
	if err != nil {
		k.close()
		return nil, unreachable(err)
	}
	return k, nil
}

func (k *call) close() {
	k.stop()
	_ = k.conn.Close()
}

// next returns the next reply.
func (k *call) next() (*wire.ApiReply, error) {
	for {
		var m wire.ApiReply
		err := k.conn.SetReadDeadline(time.Now().Add(deadAfter))
		if err == nil {
			err = wire.ReadFrame(k.conn, &m, limitReplyBytes)
		}
		switch {
		case err != nil && errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: it closed the connection", ErrLost)
		case err != nil:
			return nil, unreachable(err)
		case m.GetError() != nil:
			return nil, apiwire.UnpackError(m.GetError())
		case m.GetAlive() == nil:
			return &m, nil
		case m.GetAlive().GetWaiting() != "" && k.notice != nil:
			k.notice(m.GetAlive().GetWaiting())
		}
	}
}

// ask sends a request that has one reply.
func (c *Client) ask(ctx context.Context, r *wire.ApiRequest) (*wire.ApiReply, error) {
	return c.askFor(ctx, r, nil)
}

// askFor is ask; notice gets what the reply waits for.
func (c *Client) askFor(ctx context.Context, r *wire.ApiRequest, notice func(text string)) (*wire.ApiReply, error) {
	k, err := c.call(ctx, r)
	if err != nil {
		return nil, err
	}
	defer k.close()
	k.notice = notice
	m, err := k.next()
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return m, err
}

// unreachable marks errors that mean that the coordinator can't be reached with ErrLost.
func unreachable(err error) error {
	var search *locate.SearchError
	if errors.As(err, &search) {
		if search.Absent() {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		return err
	}
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &op) && op.Op != "remote error" || errors.As(err, &dns) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

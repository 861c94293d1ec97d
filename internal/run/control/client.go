package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// Errors of clients.
var (
	// ErrAbsent: no process listens for the run.
	ErrAbsent = errors.New("no process listens for the run")
	// ErrUser: the run belongs to another user.
	ErrUser = errors.New("the run belongs to another user")
	// ErrGone: the run's process has closed the connection. The run has probably ended.
	ErrGone = errors.New("the run's process has closed the connection")
	// ErrRefused: the run has refused the request.
	ErrRefused = errors.New("the run has refused the request")
	// ErrBusy: the run has too many clients.
	ErrBusy = errors.New("the run is busy")
)

// Client is connected to a run's process. It is for one goroutine.
type Client struct {
	conn *net.UnixConn
	in   *bufio.Reader
	long []byte
}

// Dial connects to the process of the run with a folder.
func Dial(ctx context.Context, dir string) (*Client, error) {
	all, err := places(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		c, err := dialAt(ctx, path)
		if !errors.Is(err, ErrAbsent) {
			return c, err
		}
	}
	return nil, ErrAbsent
}

func dialAt(ctx context.Context, path string) (*Client, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, ErrAbsent
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	if uid, known := ownerOf(info, err); known && uid != os.Getuid() && os.Getuid() != 0 {
		return nil, otherUser(uid)
	}
	dialer := net.Dialer{Timeout: dialTime}
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case refusedByNobody(err) || errors.Is(err, fs.ErrNotExist):
		return nil, ErrAbsent // its process has ended
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: %w", ErrUser, err)
	case err != nil:
		return nil, err
	}
	c := conn.(*net.UnixConn)
	if uid, known := peer(c); known && uid != os.Getuid() && os.Getuid() != 0 {
		return nil, errors.Join(otherUser(uid), c.Close())
	}
	return &Client{conn: c, in: bufio.NewReaderSize(c, 64<<10)}, nil
}

func ownerOf(info fs.FileInfo, err error) (uid int, known bool) {
	if err != nil {
		return 0, false
	}
	return owner(info)
}

func otherUser(uid int) error { return fmt.Errorf("%w, %s", ErrUser, userName(uid)) }

// userName returns a user's name, else the number.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Status returns how the run is.
func (c *Client) Status() (State, error) { return c.ask(request{Op: opStatus}) }

// Change requests a change. It returns when the run has received it, and for a change that the run may refuse, accepted it.
func (c *Client) Change(ch event.Change) (State, error) {
	return c.ask(request{Op: opChange, Change: &ch})
}

// Kill ends the run at once.
func (c *Client) Kill() (State, error) { return c.ask(request{Op: opKill}) }

func (c *Client) ask(q request) (State, error) {
	q.Version = version
	line, err := c.exchange(q)
	if err != nil {
		return State{}, err
	}
	a, err := parseAnswer(line)
	if err == nil {
		err = a.refusal()
	}
	if err != nil {
		return State{}, err
	}
	return *a.State, nil
}

// refusal returns why the run refused a request; nil: it did not.
func (a answer) refusal() error {
	switch {
	case a.Error == "":
		return nil
	case a.Busy:
		return fmt.Errorf("%w: %s", ErrBusy, a.Error)
	}
	return fmt.Errorf("%w: %s", ErrRefused, a.Error)
}

// exchange sends a request and reads a line.
func (c *Client) exchange(q request) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, gone(err)
	}
	sent := send(c.conn, q)
	// A process that refuses a client says so and closes the connection; the answer is there although the request is not sent.
	line, err := readLine(c.in, limitAnswerBytes, &c.long)
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, errTooLong):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the run's process has not answered for %v: %w", answerTime, err)
	case sent != nil:
		return nil, gone(sent)
	}
	return nil, gone(err)
}

func gone(err error) error { return fmt.Errorf("%w: %w", ErrGone, err) }

package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// ClientConfig is what an operator or a viewer needs to reach a coordinator.
type ClientConfig struct {
	Address  string // the coordinator's host:port, or by what package discovery finds it
	Token    Token  // by which it gets a certificate, where CertFile has none yet
	CertFile string // where its certificate is kept; "": it gets one with each start
	Name     string // of the person, for the coordinator's log; "": the role
}

// Client asks a coordinator for what its role allows.
type Client struct {
	at     *locator // of the coordinator
	root   []byte
	keeper *pki.Keeper
}

// NewClient gets a certificate for a token, or reads the one that is kept.
func NewClient(ctx context.Context, cfg ClientConfig) (*Client, error) {
	at, err := newLocator(cfg.Address)
	if err != nil {
		return nil, err
	}
	c := &Client{at: at}
	if err := c.prepare(ctx, cfg); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the search for the coordinator, where one goes on. What is under way goes on too,
// but does not come back when its connection breaks.
func (c *Client) Close() { c.at.close() }

func (c *Client) prepare(ctx context.Context, cfg ClientConfig) error {
	cert, err := c.certificate(ctx, cfg)
	if err != nil {
		return err
	}
	c.keeper = pki.NewKeeper(cert, func(ctx context.Context, csr []byte) ([]byte, error) {
		return renew(ctx, c.at, c.root, c.keeper, csr)
	}, slog.New(slog.DiscardHandler))
	if cfg.CertFile == "" {
		return nil
	}
	c.keeper.OnRenewed(func(cert tls.Certificate) error { return pki.WriteCertificateFile(cfg.CertFile, cert) })
	if err := c.keeper.RenewDue(ctx); err != nil {
		return fmt.Errorf("renewing the certificate in %s: %w", cfg.CertFile, unreachable(err))
	}
	return nil
}

// certificate is what is kept, or a new one.
func (c *Client) certificate(ctx context.Context, cfg ClientConfig) (cert tls.Certificate, err error) {
	if cfg.CertFile != "" {
		cert, c.root, err = pki.ReadCertificateFile(cfg.CertFile)
		switch {
		case err == nil && (cfg.Token.ID == "" || outlived(cert, c.root, cfg.Token, clock.Now()) == ""):
			return cert, checkRole("certificate in "+cfg.CertFile, pki.RoleIn(cert), RoleOperator, RoleViewer)
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return cert, err
		case cfg.Token.ID == "":
			return cert, fmt.Errorf("%w; a token makes one (--token-file)", err)
		}
	}
	if err := checkRole("token", cfg.Token.Role, RoleOperator, RoleViewer); err != nil {
		return cert, err
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails, as its documentation says
	name := cfg.Name
	if name == "" {
		name = string(cfg.Token.Role)
	}
	if cert, c.root, err = join(ctx, c.at, cfg.Token, clientName(name)+"-"+hex.EncodeToString(id[:]), cfg.CertFile != ""); err != nil {
		return cert, fmt.Errorf("asking the coordinator at %s: %w", cfg.Address, unreachable(err))
	}
	if cfg.CertFile != "" {
		err = pki.WriteCertificateFile(cfg.CertFile, cert)
	}
	return cert, err
}

// clientName makes a person's name one that a certificate can have.
func clientName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	if name = strings.Trim(name[:min(len(name), 32)], "-"); name == "" {
		return "client"
	}
	return name
}

// unreachable marks errors of a coordinator that is not there.
func unreachable(err error) error {
	var search *searchError
	if errors.As(err, &search) {
		if search.absent() {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		return err
	}
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &op) && op.Op != "remote error" || errors.As(err, &dns) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// call is a request whose answers are being read.
type call struct {
	conn   net.Conn
	stop   func() bool
	notice func(text string) // is told what the answer waits for; nil: nobody is
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

// next is the next answer.
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
			return nil, unpackError(m.GetError())
		case m.GetAlive() == nil:
			return &m, nil
		case m.GetAlive().GetWaiting() != "" && k.notice != nil:
			k.notice(m.GetAlive().GetWaiting())
		}
	}
}

// ask sends a request that has one answer.
func (c *Client) ask(ctx context.Context, r *wire.ApiRequest) (*wire.ApiReply, error) {
	return c.askFor(ctx, r, nil)
}

// askFor is ask, with who is told what the answer waits for.
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

// Submit asks for a run, and returns its id when it has begun. When ctx ends before, so does
// the run. Errors of the configuration are *troupe.SetupError.
func (c *Client) Submit(ctx context.Context, s Submission) (id string, err error) {
	m, err := c.askFor(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Submit{Submit: &wire.SubmitRequest{Config: s.Config, File: s.File, Sets: s.Sets, Fresh: s.Fresh, FromStep: int64(s.FromStep),
		AcceptNewData: s.AcceptNewData, Name: s.Name, Registered: registry.Names(), Variables: variablesOf(s.Config, s.Sets)}}}, s.Notice)
	return m.GetSubmit().GetId(), err
}

// variablesOf are the variables of this process's environment that a configuration names, by ${NAME}.
func variablesOf(text []byte, sets []string) map[string]string {
	values := make(map[string]string)
	for _, name := range config.Variables(append([]string{string(text)}, sets...)...) {
		if v, set := os.LookupEnv(name); set {
			values[name] = v
		}
	}
	return values
}

// Runs lists the runs, in the order in which they were asked for.
func (c *Client) Runs(ctx context.Context) ([]RunSummary, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_List{List: &wire.ListRequest{}}})
	var all []RunSummary
	for _, r := range m.GetList().GetRuns() {
		all = append(all, unpackSummary(r))
	}
	return all, err
}

// RunSummary describes a run in a few words.
type RunSummary struct {
	ID, Name    string
	State       string // starting, waiting, running, paused, stopping, done, stopped or failed
	Step, Steps int
	Loss        *float64
	ValLoss     *float64
	Workers     []string
	Submitted   time.Time
	SubmittedBy string
	Ended       time.Time // zero: not yet
	Out         string
	Restarts    int
	Checkpoint  string // the last one
	Error       string
	Waiting     string // what a run waits for before it begins or is resumed, and when it tries again
	// Warning is said by the answer to a request: it was carried out, but something about it was not.
	Warning string
}

// Over reports whether the run has ended.
func (s RunSummary) Over() bool { return !s.Ended.IsZero() }

var states = [...]string{"starting", "waiting", "running", "paused", "stopping", "done", "stopped", "failed"}

func unpackSummary(w *wire.RunSummary) RunSummary {
	s := RunSummary{ID: w.GetId(), Name: w.GetName(), State: "unknown", Step: int(w.GetStep()), Steps: int(w.GetSteps()), Loss: w.Loss, ValLoss: w.ValLoss, Workers: w.GetWorkers(), Submitted: time.Unix(0, w.GetSubmittedNs()),
		SubmittedBy: w.GetSubmittedBy(), Out: w.GetOut(), Restarts: int(w.GetRestarts()), Checkpoint: w.GetDir(), Error: w.GetError(), Waiting: w.GetWaiting()}
	if n := int(w.GetState()); n >= 0 && n < len(states) {
		s.State = states[n]
	}
	if w.GetEndedNs() != 0 {
		s.Ended = time.Unix(0, w.GetEndedNs())
	}
	return s
}

func unpackControl(w *wire.ControlReply) RunSummary {
	s := unpackSummary(w.GetRun())
	s.Warning = w.GetWarning()
	return s
}

// Status is what every actor of a run is doing. The run is named by its id, the beginning of
// that, or its name.
func (c *Client) Status(ctx context.Context, run string) (RunSummary, event.Status, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Status{Status: &wire.RunStatusRequest{Run: run}}})
	if err != nil {
		return RunSummary{}, event.Status{}, err
	}
	s, err := unpackStatus(m.GetStatus())
	return unpackSummary(m.GetStatus().GetRun()), s, err
}

// Control is what may be asked of a run in progress.
type Control int32

// The controls.
const (
	Pause      = Control(wire.ControlRequest_PAUSE)
	Resume     = Control(wire.ControlRequest_RESUME)
	Checkpoint = Control(wire.ControlRequest_CHECKPOINT)
	Stop       = Control(wire.ControlRequest_STOP) // at the end of its step, with a checkpoint
	Kill       = Control(wire.ControlRequest_KILL) // at once
)

// Change asks for a change of a run: see troupe.Change. It returns when the run was told.
func (c *Client) Change(ctx context.Context, run string, ch troupe.Change) (RunSummary, error) {
	r := &wire.ControlRequest{Run: run, Step: ch.Step, Lr: ch.LR, MinLr: ch.MinLR}
	for action, kind := range changeKinds {
		if kind == ch.Kind {
			r.Action = action
		}
	}
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Control{Control: r}})
	if err != nil {
		return RunSummary{}, err
	}
	return unpackControl(m.GetControl()), nil
}

// Forecast asks where a configuration's ranks would be computed, and what a step is
// predicted to take there. The configuration's paths are the coordinator's.
func (c *Client) Forecast(ctx context.Context, text []byte, file string, sets []string, seconds float64) (*Forecast, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Forecast{Forecast: &wire.ForecastRequest{Config: text, File: file, Sets: sets, Seconds: seconds, Registered: registry.Names(), Variables: variablesOf(text, sets)}}})
	if err != nil {
		return nil, err
	}
	r := m.GetForecast()
	f := &Forecast{StepMS: r.GetStepMs(), TokensPerS: r.GetTokensPerS(), BubblePct: r.GetBubblePct(), MessageMS: r.GetMessageMs(), Apart: r.GetApart()}
	for _, k := range r.GetRanks() {
		f.Ranks = append(f.Ranks, RankForecast{int(k.GetRank()), k.GetWorker(), k.GetHost(), int(k.GetCores()), k.GetDevice(), k.GetBytes(), k.GetMemoryBytes()})
	}
	for _, l := range r.GetLinks() {
		f.Links = append(f.Links, LinkForecast{l.GetFrom(), l.GetTo(), l.GetLatencyMs(), l.GetBytesPerS()})
	}
	return f, nil
}

// Control asks something of a run. It returns when the run was told.
func (c *Client) Control(ctx context.Context, run string, what Control) (RunSummary, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Control{Control: &wire.ControlRequest{Run: run, Action: wire.ControlRequest_Action(what)}}})
	if err != nil {
		return RunSummary{}, err
	}
	return unpackControl(m.GetControl()), nil
}

// Members lists the workers. now is the coordinator's time.
func (c *Client) Members(ctx context.Context) (members []ClusterMember, now time.Time, err error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Members{Members: &wire.MembersRequest{}}})
	for _, w := range m.GetMembers().GetMembers() {
		one := ClusterMember{Member: Member{Name: w.GetName(), Address: w.GetAddress(), Cores: int(w.GetCores()), MemoryBytes: w.GetMemoryBytes(), Kernels: w.GetKernels(), Devices: unpackDevices(w.GetDevices()), Joined: time.Unix(0, w.GetJoinedNs()), Heard: time.Unix(0, w.GetHeardNs()),
			ClockAhead: time.Duration(w.GetClockAheadNs()), RoundTrip: time.Duration(w.GetRoundTripNs())}, RunID: w.GetRun()}
		for _, rank := range w.GetRanks() {
			one.Ranks = append(one.Ranks, int(rank))
		}
		members = append(members, one)
	}
	return members, time.Unix(0, m.GetMembers().GetTimeNs()), err
}

// Unreachable lists the workers that ask to join and are refused, since the coordinator can't reach them. now is the
// coordinator's time.
func (c *Client) Unreachable(ctx context.Context) (workers []UnreachableWorker, now time.Time, err error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Members{Members: &wire.MembersRequest{}}})
	for _, w := range m.GetMembers().GetUnreachable() {
		workers = append(workers, UnreachableWorker{w.GetName(), w.GetAddress(), w.GetError(), time.Unix(0, w.GetAskedNs())})
	}
	return workers, time.Unix(0, m.GetMembers().GetTimeNs()), err
}

// ClusterMember is a worker, as a client sees it.
type ClusterMember struct {
	Member
	RunID string // that it computes ranks of; "": none, or one that the coordinator was not asked for
}

// LogRecord is a line of a process's log. Its time is by the coordinator's clock.
type LogRecord struct {
	Time       time.Time
	Level      slog.Level
	Process    string // a worker's name, or "coordinator"
	Text       string
	Attributes [][2]string
	Offset     time.Duration // that the process's clock is ahead, and that was taken off its time
}

// keep renews the certificate while something is followed, which may be for days.
func (c *Client) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Add(1)
	go func() { // ends with ctx
		defer running.Done()
		c.keeper.Run(ctx)
	}()
	return func() {
		cancel()
		running.Wait()
	}
}

// Logs calls show with what was logged since a time, and with follow what is, until ctx
// ends; run "" is all. dropped counts records that were lost.
func (c *Client) Logs(ctx context.Context, run string, since time.Time, follow bool, show func(records []LogRecord, dropped uint64) error) error {
	request := &wire.LogsRequest{Run: run, Follow: follow}
	if !since.IsZero() {
		request.SinceNs = since.UnixNano()
	}
	k, err := c.call(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Logs{Logs: request}})
	if err != nil {
		return err
	}
	defer k.close()
	defer c.keep(ctx)()
	for first := true; ; first = false {
		m, err := k.next()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && !follow && !first && errors.Is(err, ErrLost): // it has sent all
			return nil
		case err != nil:
			return err
		}
		var records []LogRecord
		for _, w := range m.GetLogs().GetRecords() {
			r := LogRecord{Time: time.Unix(0, w.GetTimeNs()), Level: slog.Level(w.GetLevel()), Process: w.GetProcess(), Text: w.GetText(), Offset: time.Duration(w.GetOffsetNs())}
			for _, a := range w.GetAttributes() {
				r.Attributes = append(r.Attributes, [2]string{a.GetKey(), a.GetValue()})
			}
			records = append(records, r)
		}
		if err := show(records, m.GetLogs().GetDropped()); err != nil {
			return err
		}
	}
}

// TokenInfo is what a coordinator tells of a token.
type TokenInfo = pki.TokenInfo

// NewToken has the coordinator make a token, where it lets operators do that.
func (c *Client) NewToken(ctx context.Context, role pki.Role, ttl time.Duration) (Token, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{Kind: &wire.TokensRequest_Create{Create: &wire.CreateToken{Role: string(role), TtlS: int64(ttl / time.Second)}}}}})
	if err != nil {
		return Token{}, err
	}
	return ParseToken(m.GetTokens().GetToken())
}

// Tokens lists the coordinator's tokens, where it lets operators do that.
func (c *Client) Tokens(ctx context.Context) ([]TokenInfo, error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{Kind: &wire.TokensRequest_List{List: &wire.ListTokens{}}}}})
	var all []TokenInfo
	for _, t := range m.GetTokens().GetTokens() {
		all = append(all, TokenInfo{ID: t.GetId(), Role: pki.Role(t.GetRole()), Expires: time.Unix(t.GetExpiresS(), 0), Revoked: t.GetRevoked(), Uses: t.GetUses()})
	}
	return all, err
}

// NameInfo is what a coordinator tells of a worker's name.
type NameInfo = pki.NameInfo

// Names lists the names that workers have, where the coordinator lets operators do that.
func (c *Client) Names(ctx context.Context) (all []NameInfo, err error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{Kind: &wire.TokensRequest_List{List: &wire.ListTokens{}}}}})
	for _, n := range m.GetTokens().GetNames() {
		all = append(all, NameInfo{Name: n.GetName(), Token: n.GetToken(), Until: time.Unix(n.GetUntilS(), 0)})
	}
	return all, err
}

// Release lets another key have a worker's name, where the coordinator lets operators do that.
func (c *Client) Release(ctx context.Context, name string) error {
	_, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{Kind: &wire.TokensRequest_Release{Release: &wire.ReleaseName{Name: name}}}}})
	return err
}

// Revoke ends a token, and what it has let in, where the coordinator lets operators do that.
func (c *Client) Revoke(ctx context.Context, id string) error {
	_, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{Kind: &wire.TokensRequest_Revoke{Revoke: &wire.RevokeToken{Id: id}}}}})
	return err
}

package cluster

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/cluster/internal/link"
	"github.com/troupe-ml/troupe/cluster/internal/locate"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// adversaryEnv is the environment variable that makes the test binary an adversary; it has the coordinator's address.
const adversaryEnv = "TROUPE_ADVERSARY_JOIN"

// Files in a shared folder with which an adversary and its test tell each other their progress.
const (
	assignedFile = "assign"  // the Assign that one of them was sent, for the others
	paramsFile   = "params"  // names of parameters
	killedFile   = "killed"  // the attempt is told to end
	endedFile    = "ended"   // it has ended
	takenSuffix  = ".taken"  // all that has come to one, byte for byte
	triedSuffix  = ".tried"  // it has tried all, while the attempt was there
	afterSuffix  = ".after"  // and when it had ended
	failedSuffix = ".failed" // what it got that it should not have got, by other ways than messages
)

// adversary has a worker's certificate, sends arbitrary messages, and stores all that it receives.
type adversary struct {
	w      *worker
	dir    string
	edge   string // address of the worker that has the private part
	id     uuid.UUID
	net    *transport.TCP
	system *actor.ActorSystem
	link   *link.Node
	lane   *lane.Node

	mu       sync.Mutex
	taken    *os.File
	boss     *wire.Peer
	assigned chan *wire.Assign
	came     chan struct{} // a tensor has come
}

// TestAdversaryProgram is not a test but the program that other tests start.
func TestAdversaryProgram(t *testing.T) {
	join := os.Getenv(adversaryEnv)
	if join == "" {
		t.Skip("it is a process of another test")
	}
	ctx, token := fromStdin(t)
	a := &adversary{dir: os.Getenv(adversaryEnv + "_DIR"), edge: os.Getenv(adversaryEnv + "_EDGE"), assigned: make(chan *wire.Assign, 1),
		came: make(chan struct{}, 1)}
	if err := a.run(ctx, WorkerConfig{Join: join, Token: token, Name: os.Getenv(adversaryEnv + "_NAME"), Threads: 1, LaneStreams: 2,
		Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
}

func (a *adversary) path(suffix string) string { return filepath.Join(a.dir, a.w.cfg.Name+suffix) }

// take stores what was received.
func (a *adversary) take(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.taken.Write(b)
}

// got records that an attack succeeded.
func (a *adversary) got(format string, args ...any) {
	f, err := os.OpenFile(a.path(failedSuffix), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = fmt.Fprintf(f, format+"\n", args...)
		_ = f.Close()
	}
}

func (a *adversary) run(ctx context.Context, cfg WorkerConfig) (err error) {
	a.w = &worker{cfg: cfg, log: cfg.Logger, logs: newForwarder()}
	if a.w.build, err = buildID(); err != nil {
		return err
	}
	if a.w.at, err = locate.New(cfg.Join); err != nil {
		return err
	}
	if err := a.w.join(ctx); err != nil {
		return err
	}
	if a.taken, err = os.Create(a.path(takenSuffix)); err != nil {
		return err
	}
	if a.id, err = uuid.NewV7(); err != nil {
		return err
	}
	if err := a.listen(); err != nil {
		return err
	}
	defer a.system.Shutdown()
	defer a.net.Close()
	if err := a.greetAs(ctx, a.edge, a.net.Address()); err == nil {
		a.got("it is a member at the address of another one")
	}
	offer, err := a.w.offer()
	if err != nil {
		return err
	}
	client := beat.NewClient(beat.ClientConfig{Dial: func(ctx context.Context) (net.Conn,
		error) {
		return a.w.dialCoordinator(ctx, beatProtocol)
	},
		Hello: &wire.Hello{Worker: &wire.Peer{Name: cfg.Name, Incarnation: a.id[:], Address: a.net.Address()}, Build: a.w.build, Offer: offer},
		Welcomed: func(w *wire.Welcome) {
			a.mu.Lock()
			a.boss = w.GetCoordinator()
			a.mu.Unlock()
			a.know(w.GetCoordinator())
		}, Status: func() []*wire.StatusReply { return nil }, Logger: cfg.Logger})
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		_ = client.Run(ctx)
	}()
	a.attack(ctx)
	<-done
	a.link.Close()
	a.lane.Close()
	return nil
}

func (a *adversary) listen() (err error) {
	a.system = newSystem(a.w.log)
	a.net, err = transport.Listen(transport.Config{System: a.system, Listen: "127.0.0.1:0", Server: pki.ServerTLS(a.w.root, a.w.keeper.Get),
		Client: func(string) *tls.Config { return pki.ClientTLS(a.w.root, a.w.keeper.Get) },
		Allow:  func(transport.Peer, string) bool { return true }, Identify: identify, Logger: a.w.log,
		Handlers: transport.Handlers{Envelope: func(_ transport.Peer, e *wire.Envelope) {
			if text, err := proto.Marshal(e); err == nil {
				a.take(text)
			}
			_ = a.link.Receive(e)
		}, Streams: map[string]func(net.Conn, transport.Peer){
			mesh.LaneProtocol: func(conn net.Conn, _ transport.Peer) { a.lane.Accept(conn, func(lane.ID) error { return nil }) },
			probeProtocol:     new(prober).serve,
		}}})
	if err != nil {
		return err
	}
	a.link = link.New(link.Config{Self: a.id, Name: a.w.cfg.Name, Send: a.net.Send,
		Redial: func(_ link.ID, address string) { a.net.Redial(address) }, Deliver: a.deliver})
	a.lane = a.newLane(a.id)
	return nil
}

func (a *adversary) newLane(self uuid.UUID) *lane.Node {
	return lane.New(lane.Config{Self: lane.ID(self), Streams: 2, NoSharedMemory: true,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return a.net.Dial(ctx, address, mesh.LaneProtocol)
		}})
}

// know adds a process as a target.
func (a *adversary) know(p *wire.Peer) {
	id, err := uuid.FromBytes(p.GetIncarnation())
	if err != nil {
		return
	}
	a.link.SetPeer(id, p.GetAddress())
	a.lane.SetPeer(lane.ID(id), p.GetAddress())
}

func (a *adversary) deliver(_ link.ID, e *wire.Envelope) {
	if m := e.GetControl().GetAssign(); m != nil {
		select {
		case a.assigned <- m:
		default:
		}
	}
}

// greetAs tries to become a member at another process's address, with its own address for tensors.
func (a *adversary) greetAs(ctx context.Context, address, data string) error {
	conn, err := a.w.dialCoordinator(ctx, beatProtocol)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is kept
	id := uuid.New()
	if err := wire.WriteFrame(conn, &wire.Hello{Worker: &wire.Peer{Name: a.w.cfg.Name, Incarnation: id[:], Address: address,
		DataAddress: data}, Build: a.w.build, Offer: &wire.Offer{Cores: 1}}, beat.LimitBeatBytes); err != nil {
		return err
	}
	var w wire.Welcome
	if err := wire.ReadFrame(conn, &w, beat.LimitBeatBytes); err != nil {
		return err
	}
	if w.GetError() != "" {
		return errors.New(w.GetError())
	}
	return nil
}

// await waits for a file, or until ctx ends.
func await(ctx context.Context, path string) []byte {
	for ctx.Err() == nil {
		if text, err := os.ReadFile(path); err == nil {
			return text
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// put writes a file atomically.
func put(path string, text []byte) {
	if os.WriteFile(path+".new", text, 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}

// attack tries all attacks, during the attempt and after it.
func (a *adversary) attack(ctx context.Context) {
	assign := &wire.Assign{}
	if a.w.cfg.Name == "spare" { // which is never assigned to: a friend tells it of the attempt
		if proto.Unmarshal(await(ctx, filepath.Join(a.dir, assignedFile)), assign) != nil {
			return
		}
	} else {
		select {
		case assign = <-a.assigned:
		case <-ctx.Done():
			return
		}
		a.begin(ctx, assign)
		text, _ := proto.Marshal(assign)
		put(filepath.Join(a.dir, assignedFile), text)
	}
	for _, p := range assign.GetHosts() {
		if string(p.GetIncarnation()) != string(a.id[:]) {
			a.know(p)
		}
	}
	attempt, _ := uuid.FromBytes(assign.GetAttempt())
	group := a.open(a.lane, attempt)
	all := []string{a.net.Address(), a.edge, assign.GetHosts()[0].GetAddress(), ""}
	a.tryMessages(ctx, assign, group, all)
	a.tryOthers(ctx, assign)
	put(a.path(triedSuffix), nil)
	await(ctx, filepath.Join(a.dir, killedFile))
	// One that goes on says nothing, and the run would end without it after half a minute.
	_ = a.link.Post(a.bossID(), &wire.Envelope{Target: actors.SupervisorID(attempt),
		Body: &wire.Envelope_Message{Message: &wire.Message{Header: header(assign), Kind: &wire.Message_Left{Left: &wire.Left{Rank: 1}}}}})
	if await(ctx, filepath.Join(a.dir, endedFile)); ctx.Err() != nil {
		return
	}
	a.tryMessages(ctx, assign, group, all[:1])
	time.Sleep(200 * time.Millisecond) // for what would come of it
	put(a.path(afterSuffix), nil)
	<-ctx.Done()
}

// begin acts as an honest worker until the first activations arrive, so that the run begins. But it also asks for other
// workers' weights.
func (a *adversary) begin(ctx context.Context, m *wire.Assign) {
	attempt, _ := uuid.FromBytes(m.GetAttempt())
	a.open(a.lane, attempt)
	boss := a.bossID()
	_ = a.link.Post(boss,
		&wire.Envelope{Body: &wire.Envelope_Control{Control: &wire.Control{
			Kind: &wire.Control_Assigned{Assigned: &wire.Assigned{Attempt: m.GetAttempt()}}}}})
	supervisor := actors.SupervisorID(attempt)
	a.untilOneCame(ctx, func() {
		for _, name := range a.params() {
			for _, part := range []string{"", "m", "v"} {
				read := &wire.ReadWeight{Request: 1, Name: name, Part: part, ReplyTo: &wire.Pid{Address: a.net.Address(), Id: supervisor}}
				_ = a.link.Post(boss, &wire.Envelope{Target: supervisor + "/weights",
					Body: &wire.Envelope_Message{Message: &wire.Message{Header: header(m), Kind: &wire.Message_ReadWeight{ReadWeight: read}}}})
			}
		}
	})
	ready := &wire.Message{Header: header(m), Kind: &wire.Message_StageReady{StageReady: &wire.StageReady{Rank: 1}}}
	a.untilOneCame(ctx, func() {
		_ = a.link.Post(boss, &wire.Envelope{Target: supervisor + "/scheduler", Body: &wire.Envelope_Message{Message: ready}})
	})
}

// untilOneCame repeats a request until a tensor has arrived and no more do. The coordinator drops messages for an attempt that
// has not begun there.
func (a *adversary) untilOneCame(ctx context.Context, ask func()) {
	for came := false; ctx.Err() == nil; {
		if !came {
			ask()
		}
		select {
		case <-a.came:
			came = true
		case <-time.After(200 * time.Millisecond):
			if came {
				return
			}
		case <-ctx.Done():
		}
	}
}

func (a *adversary) bossID() uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, _ := uuid.FromBytes(a.boss.GetIncarnation())
	return id
}

func header(m *wire.Assign) *wire.Header {
	return &wire.Header{Run: m.GetRun(), Attempt: m.GetAttempt(), Step: m.GetStep() + 1, Order: 1}
}

// open accepts everything on the lane for an attempt.
func (a *adversary) open(n *lane.Node, attempt uuid.UUID) *lane.Group {
	return n.Open(lane.ID(attempt), func(_ lane.ID, header []byte, lens []int) ([][]byte, func(error), error) {
		a.take(header)
		parts := make([][]byte, len(lens))
		for i, n := range lens {
			parts[i] = make([]byte, n)
		}
		return parts, func(error) {
			for _, p := range parts {
				a.take(p)
			}
			select {
			case a.came <- struct{}{}:
			default:
			}
		}, nil
	})
}

// tryMessages sends every kind of message to every actor of the coordinator and of the edge, over link and lane.
func (a *adversary) tryMessages(ctx context.Context, m *wire.Assign, group *lane.Group, answers []string) {
	attempt, _ := uuid.FromBytes(m.GetAttempt())
	edge, _ := uuid.FromBytes(m.GetHosts()[0].GetIncarnation())
	supervisor, deaf := actors.SupervisorID(attempt), make(map[uuid.UUID]bool)
	for _, message := range a.forged(m, supervisor, answers) {
		for _, actor := range []string{"", "/scheduler", "/loader", "/checkpoint", "/weights", "/metrics", "/stage 0", "/stage 1"} {
			for _, to := range []uuid.UUID{a.bossID(), edge} {
				e := &wire.Envelope{Target: supervisor + actor, Body: &wire.Envelope_Message{Message: message}}
				for end := time.Now().Add(time.Second); !deaf[to] && errors.Is(a.link.Post(to, e), link.ErrFull); time.Sleep(time.Millisecond) {
					deaf[to] = ctx.Err() != nil || time.Now().After(end) // it does not know this process
				}
				if text, err := proto.Marshal(e); err == nil && isBulk(message) {
					group.Send(lane.ID(to), text, [][]byte{make([]byte, 8)}, nil)
				}
			}
		}
	}
	// What is sent after it comes after it: the coordinator answers a request about its own weights, if the attempt is there.
	time.Sleep(300 * time.Millisecond)
}

func isBulk(m *wire.Message) bool {
	name := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("kind")).Name()
	for _, k := range actors.MessageKinds() {
		if k.Name == string(name) {
			return k.Bulk
		}
	}
	return false
}

// forged makes the messages: an empty one of each kind, and complete requests that name answers as the addresses for replies.
func (a *adversary) forged(m *wire.Assign, supervisor string, answers []string) (all []*wire.Message) {
	h := header(m)
	for _, f := range kindsOfOneof(&wire.Message{}) {
		switch f.Name() {
		case "failed", "left", "halted", "stage_done": // which would end the run, as each worker may
			continue
		}
		one := &wire.Message{Header: h}
		one.ProtoReflect().Set(f, one.ProtoReflect().NewField(f))
		all = append(all, one)
	}
	var replies []*wire.Pid
	for _, address := range answers {
		for _, actor := range []string{"", "/stage 0", "/stage 1"} {
			replies = append(replies, &wire.Pid{Address: address, Id: supervisor + actor})
		}
	}
	for i, reply := range replies {
		for chunk := range int32(3) {
			for _, phase := range []uint32{1, 2} {
				all = append(all, &wire.Message{Header: h, Kind: &wire.Message_DataRequest{DataRequest: &wire.DataRequest{Phase: phase, Chunk: chunk,
					Tokens: true, Targets: true, ReplyTo: reply}}})
			}
		}
		for j, name := range a.params() {
			if i > 0 && j%8 != i%8 { // all of them by the first
				continue
			}
			for _, part := range []string{"", "m", "v"} {
				all = append(all, &wire.Message{Header: h, Kind: &wire.Message_ReadWeight{ReadWeight: &wire.ReadWeight{Request: 1, Name: name,
					Part: part, ReplyTo: reply}}})
			}
		}
		self := func(name string) *wire.Pid { return &wire.Pid{Address: a.net.Address(), Id: supervisor + "/" + name} }
		all = append(all, &wire.Message{Header: h, Kind: &wire.Message_Peers{Peers: &wire.Peers{Scheduler: self("scheduler"),
			Loader: self("loader"), Checkpoint: self("checkpoint"), Ranks: 2}}},
			&wire.Message{Header: h, Kind: &wire.Message_SaveState{SaveState: &wire.SaveState{}}},
			&wire.Message{Header: h, Kind: &wire.Message_SaveState{SaveState: &wire.SaveState{Keep: true}}},
			&wire.Message{Header: h, Kind: &wire.Message_SendState{SendState: &wire.SendState{}}},
			&wire.Message{Header: h, Kind: &wire.Message_StageReady{StageReady: &wire.StageReady{Rank: 0}}},
			&wire.Message{Header: h, Kind: &wire.Message_Halted{Halted: &wire.Halted{Rank: 0}}},
			&wire.Message{Header: h, Kind: &wire.Message_Left{Left: &wire.Left{Rank: 0}}},
			&wire.Message{Header: h, Kind: &wire.Message_StageState{StageState: &wire.StageState{Rank: 0}}},
			&wire.Message{Header: h, Kind: &wire.Message_Failed{Failed: &wire.Failed{Actor: "stage 0", Error: "it broke"}}})
	}
	return all
}

func (a *adversary) params() []string {
	text, _ := os.ReadFile(filepath.Join(a.dir, paramsFile))
	return strings.Fields(string(text))
}

// tryOthers tries the other attacks: the lane as another process, control messages, the operators' protocol, and the name of
// the worker that has the private part.
func (a *adversary) tryOthers(ctx context.Context, m *wire.Assign) {
	attempt, _ := uuid.FromBytes(m.GetAttempt())
	edge, _ := uuid.FromBytes(m.GetHosts()[0].GetIncarnation())
	as := a.newLane(edge)
	as.SetPeer(lane.ID(a.bossID()), a.bossAddress())
	group := a.open(as, attempt)
	request := &wire.Envelope{Target: actors.SupervisorID(attempt) + "/loader",
		Body: &wire.Envelope_Message{Message: &wire.Message{Header: header(m),
			Kind: &wire.Message_DataRequest{DataRequest: &wire.DataRequest{Phase: 1, Tokens: true}}}}}
	if text, err := proto.Marshal(request); err == nil {
		ended := make(chan error, 1)
		group.Send(lane.ID(a.bossID()), text, [][]byte{make([]byte, 8)}, func(err error) { ended <- err })
		select {
		case err := <-ended:
			if err == nil {
				a.got("the coordinator takes tensors as from the edge")
			}
		case <-time.After(300 * time.Millisecond):
		}
	}
	as.Close()
	a.net.Send(a.bossAddress(), &wire.Envelope{From: edge[:], To: a.bossBytes(), Sender: "edge", Seq: 1, Target: request.GetTarget(),
		Body: request.GetBody()})
	for _, f := range kindsOfOneof(&wire.Control{}) {
		one := &wire.Control{Request: 1}
		one.ProtoReflect().Set(f, one.ProtoReflect().NewField(f))
		for _, to := range []uuid.UUID{a.bossID(), edge} {
			_ = a.link.Post(to, &wire.Envelope{Body: &wire.Envelope_Control{Control: one}})
		}
	}
	for _, f := range kindsOfOneof(&wire.ApiRequest{}) {
		r := &wire.ApiRequest{Version: apiVersion}
		r.ProtoReflect().Set(f, r.ProtoReflect().NewField(f))
		a.askAPI(ctx, r)
	}
	if _, _, err := join(ctx, a.w.at, a.w.cfg.Token, "edge", false); !errors.Is(err, ErrNameHeld) {
		a.got("joining by the name of the edge: %v", err)
	}
	if err := a.greetAs(ctx, a.edge, a.net.Address()); err == nil {
		a.got("it is a member at the address of another one")
	}
}

// askAPI sends a request that only operators and viewers may send.
func (a *adversary) askAPI(ctx context.Context, r *wire.ApiRequest) {
	conn, err := a.w.dialCoordinator(ctx, apiProtocol)
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // it has ended
	a.got("the coordinator speaks %s with a worker", apiProtocol)
	if wire.WriteFrame(conn, r, limitRequestBytes) == nil {
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		text, _ := io.ReadAll(conn)
		a.take(text)
	}
}

func (a *adversary) bossAddress() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.boss.GetAddress()
}

func (a *adversary) bossBytes() []byte {
	id := a.bossID()
	return id[:]
}

// asTokens returns a text's tokens in the tokenizer "bytes", as package wire sends them.
func asTokens(text string) (b []byte) {
	for i := range len(text) {
		b = binary.LittleEndian.AppendUint32(b, uint32(text[i]))
	}
	return b
}

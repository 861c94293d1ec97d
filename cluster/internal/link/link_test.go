package link_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/cluster/internal/link"
	"github.com/troupe-ml/troupe/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network loses, repeats and delays what passes through it.
type network struct {
	mu     sync.Mutex
	nodes  map[string]*link.Node
	chance func(percent int) bool
	held   []func()
	going  sync.WaitGroup
	cut    bool
}

func (w *network) send(address string, e *wire.Envelope) {
	text, err := proto.Marshal(e)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut || w.chance(20) {
		return
	}
	times := 1
	if w.chance(10) {
		times = 2
	}
	for range times {
		deliver := func() {
			defer w.going.Done()
			var came wire.Envelope
			if err := proto.Unmarshal(text, &came); err != nil {
				panic(err)
			}
			if err := w.nodes[address].Receive(&came); err != nil && !errors.Is(err, link.ErrUnknown) {
				panic(err)
			}
		}
		w.going.Add(1)
		if w.chance(15) {
			w.held = append(w.held, deliver)
			continue
		}
		go deliver()
	}
	if len(w.held) > 0 && w.chance(50) {
		go w.held[0]()
		w.held = w.held[1:]
	}
}

func (w *network) end() {
	w.mu.Lock()
	w.cut = true
	for _, deliver := range w.held {
		go deliver()
	}
	w.held = nil
	w.mu.Unlock()
	w.going.Wait()
}

// TestOnceInOrder: whatever is lost, repeated or late, every message in both directions is delivered once and in order.
func TestOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		counts := [2]int{rapid.IntRange(0, 30).Draw(t, "messages there"), rapid.IntRange(0, 30).Draw(t, "messages back")}
		var rmu sync.Mutex
		w := &network{nodes: make(map[string]*link.Node), chance: func(percent int) bool {
			rmu.Lock()
			defer rmu.Unlock()
			seed = seed*6364136223846793005 + 1442695040888963407
			return int(seed>>33%100) < percent
		}}
		names := [2]string{"a", "b"}
		ids := [2]uuid.UUID{uuid.New(), uuid.New()}
		var mu sync.Mutex
		var came [2][]uint64
		done := make(chan struct{}, 1)
		var nodes [2]*link.Node
		for i := range nodes {
			nodes[i] = link.New(link.Config{Self: ids[i], Name: names[i], Send: w.send, Deliver: func(from uuid.UUID, e *wire.Envelope) {
				if from != ids[1-i] || e.GetSender() != names[1-i] {
					panic("from another")
				}
				mu.Lock()
				defer mu.Unlock()
				came[i] = append(came[i], binary.LittleEndian.Uint64([]byte(e.GetTarget())))
				if len(came[0]) >= counts[1] && len(came[1]) >= counts[0] {
					select {
					case done <- struct{}{}:
					default:
					}
				}
			}})
			w.nodes[names[i]] = nodes[i]
		}
		for i, n := range nodes {
			n.SetPeer(ids[1-i], names[1-i])
			defer n.Close()
		}
		for i, n := range nodes {
			for k := range counts[i] {
				var number [8]byte
				binary.LittleEndian.PutUint64(number[:], uint64(k))
				if err := n.Post(ids[1-i], &wire.Envelope{Target: string(number[:])}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if counts[0]+counts[1] > 0 {
			for end := time.Now().Add(time.Minute); ; {
				select {
				case <-done:
				case <-time.After(2 * time.Millisecond): // so that the test does not wait for the timer
					nodes[0].Reconnected()
					nodes[1].Reconnected()
					if time.Now().Before(end) {
						continue
					}
					t.Fatalf("%d and %d of %v came", len(came[1]), len(came[0]), counts)
				}
				break
			}
		}
		w.end()
		for i := range nodes {
			want := make([]uint64, counts[1-i])
			for k := range want {
				want[k] = uint64(k)
			}
			if !slices.Equal(came[i], want) {
				t.Fatalf("%s got %d", names[i], came[i])
			}
		}
	})
}

// TestResend: a node sends lost messages again until they are acknowledged.
func TestResend(t *testing.T) {
	a, b := uuid.New(), uuid.New()
	got := make(chan *wire.Envelope, 16)
	n := link.New(link.Config{Self: a, Name: "a", Send: func(_ string, e *wire.Envelope) { got <- e }})
	defer n.Close()
	n.SetPeer(b, "b")
	if err := n.Post(b, &wire.Envelope{Target: "x"}); err != nil {
		t.Fatal(err)
	}
	var session uint64
	for range 2 {
		e := <-got
		if e.GetSeq() != 1 || e.GetTarget() != "x" || e.GetSession() == 0 || e.GetPeerSession() != 0 {
			t.Fatalf("sent %v", e)
		}
		session = e.GetSession()
	}
	for _, late := range []*wire.Envelope{{Session: 7, PeerSession: session - 1, Ack: 1}, {Session: 7, Ack: 1},
		{PeerSession: session, Ack: 1}} {
		late.From, late.To = b[:], a[:]
		if err := n.Receive(late); err != nil {
			t.Fatal(err)
		}
		if waiting, _ := n.Waiting(b); waiting != 1 {
			t.Fatalf("%v was taken for an acknowledgement of this session", late)
		}
	}
	if err := n.Receive(&wire.Envelope{From: b[:], To: a[:], Ack: 1, Session: 7, PeerSession: session}); err != nil {
		t.Fatal(err)
	}
	if waiting, resent := n.Waiting(b); waiting != 0 || resent == 0 {
		t.Errorf("%d wait, %d were sent again", waiting, resent)
	}
}

// TestLate: two processes that forget each other and meet again start new numbers. They ignore late messages and
// acknowledgments from before.
func TestLate(t *testing.T) {
	ids := map[string]uuid.UUID{"a": uuid.New(), "b": uuid.New()}
	nodes := make(map[string]*link.Node)
	var mu sync.Mutex
	var delivered []string
	var held, kept []*wire.Envelope // on their way to b; and all that ever were, to anybody
	hold := false
	queue := make(chan func(), 1<<10)
	for name, id := range ids {
		nodes[name] = link.New(link.Config{Self: id, Name: name, Send: func(address string, e *wire.Envelope) {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, e)
			if hold && address == "b" {
				held = append(held, e)
				return
			}
			queue <- func() { _ = nodes[address].Receive(e) }
		}, Deliver: func(_ uuid.UUID, e *wire.Envelope) { delivered = append(delivered, e.GetTarget()) }})
		defer nodes[name].Close()
	}
	settle := func() {
		for {
			select {
			case f := <-queue:
				f()
			default:
				return
			}
		}
	}
	meet := func() {
		nodes["a"].SetPeer(ids["b"], "b")
		nodes["b"].SetPeer(ids["a"], "a")
	}
	post := func(texts ...string) {
		for _, text := range texts {
			if err := nodes["a"].Post(ids["b"], &wire.Envelope{Target: text}); err != nil {
				t.Fatal(err)
			}
		}
	}
	meet()
	post("1.1", "1.2")
	settle()
	mu.Lock()
	hold = true
	mu.Unlock()
	post("1.3") // never arrives in time
	settle()
	mu.Lock()
	before := slices.Clone(kept)
	hold = false
	mu.Unlock()
	nodes["a"].Forget(ids["b"])
	nodes["b"].Forget(ids["a"])
	meet()
	late := func() {
		for _, e := range append(before, held...) {
			to := "a"
			if e.GetSender() == "a" {
				to = "b"
			}
			if err := nodes[to].Receive(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	late()
	post("2.1")
	late()
	settle()
	late()
	post("2.2")
	settle()
	late()
	if want := []string{"1.1", "1.2", "2.1", "2.2"}; !slices.Equal(delivered, want) {
		t.Errorf("delivered %q, want %q", delivered, want)
	}
	nodes["b"].Reconnected() // tells a what has come
	settle()
	if waiting, _ := nodes["a"].Waiting(ids["b"]); waiting != 0 {
		t.Errorf("%d messages wait", waiting)
	}
}

// TestRefused: messages for another process or from an unknown one are dropped and reported.
func TestRefused(t *testing.T) {
	a, b := uuid.New(), uuid.New()
	n := link.New(link.Config{Self: a, Name: "a", Send: func(string, *wire.Envelope) {},
		Deliver: func(uuid.UUID, *wire.Envelope) { t.Error("it is delivered") }})
	defer n.Close()
	for name, e := range map[string]*wire.Envelope{
		"no sender":        {To: a[:], Seq: 1},
		"for another":      {From: b[:], To: b[:], Seq: 1},
		"from a stranger":  {From: b[:], To: a[:], Seq: 1},
		"nothing at all":   {},
		"sender too long":  {From: make([]byte, 17), To: a[:]},
		"sender too short": {From: []byte{1}, To: a[:]},
	} {
		if err := n.Receive(e); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if err := n.Post(b, &wire.Envelope{}); !errors.Is(err, link.ErrUnknown) {
		t.Errorf("to a stranger: %v", err)
	}
	n.SetPeer(b, "b")
	for range link.LimitUnacknowledged {
		if err := n.Post(b, &wire.Envelope{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Post(b, &wire.Envelope{}); !errors.Is(err, link.ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	n.Forget(b)
	if err := n.Post(b, &wire.Envelope{}); !errors.Is(err, link.ErrUnknown) {
		t.Errorf("to one that is gone: %v", err)
	}
}

// FuzzReceive: no envelope makes a node fail.
func FuzzReceive(f *testing.F) {
	a, b := uuid.UUID{1}, uuid.UUID{2}
	for _, e := range []*wire.Envelope{{From: b[:], To: a[:], Seq: 1, Ack: 1}, {From: b[:], To: a[:], Seq: 1 << 63, Ack: 1 << 63}, {}} {
		text, err := proto.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var e wire.Envelope
		if proto.Unmarshal(text, &e) != nil {
			return
		}
		n := link.New(link.Config{Self: a, Name: "a", Send: func(string, *wire.Envelope) {}, Deliver: func(uuid.UUID, *wire.Envelope) {}})
		defer n.Close()
		n.SetPeer(b, "b")
		_ = n.Post(b, &wire.Envelope{})
		for range 2 {
			_ = n.Receive(&e)
		}
	})
}

package optest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// streamTests are what tensorops promises of streams, whatever they compute.
var streamTests = []struct {
	name string
	run  func(t T, dev tensorops.Device)
}{
	{"lists run in the order of submission", inOrder},
	{"a recording error is reported", recordingError},
	{"an operation after a failed one does not run", stopsAtError},
	{"memory of another stream goes back", goesBack},
	{"memory goes back from refused lists", goesBackRefused},
	{"a collective's error is reported", collectiveError},
	{"a waiting collective holds no core", collectiveWaits},
	{"a full queue refuses", fullQueue},
	{"a closed stream refuses", closedStream},
	{"closing fails the lists that wait", closeFailsWaiting},
}

func runStreams[S Subtests[S]](t S, dev tensorops.Device) {
	for _, test := range streamTests {
		t.Run(test.name, func(t S) { test.run(t, dev) })
	}
}

// gate is a group whose collective ends when the test says so.
type gate struct {
	tensorops.Solo
	started chan struct{}
	result  chan error
}

func newGate() *gate { return &gate{started: make(chan struct{}), result: make(chan error, 1)} }

// Start waits for the result in a goroutine, as a network would.
func (g *gate) Start(_ *tensorops.Op, done func(error)) {
	close(g.started)
	go func() { done(<-g.result) }()
}

// submit hands the list over; its outcome comes through the channel.
func submit(s tensorops.Stream, l *tensorops.List) <-chan error {
	outcome := make(chan error, 2) // room for a second call, which would be a bug
	s.Submit(l, func(err error) { outcome <- err })
	return outcome
}

// blocked submits a list that runs until the gate opens.
func blocked(s tensorops.Stream) (*gate, <-chan error) {
	g := newGate()
	b := newBuilder(s, "blocked")
	t := b.normal(3)
	b.AllReduce(t, tensorops.Sum, g)
	b.Free(t)
	outcome := submit(s, b.List)
	<-g.started
	return g, outcome
}

func inOrder(t T, dev tensorops.Device) {
	s := dev.NewStream("order")
	defer s.Close()
	b := newBuilder(s, "order")
	x := b.normal(1000)
	b.Fill(x, 1)
	if err := tensorops.Run(s, b.List); err != nil {
		t.Fatal(err)
	}
	// x → x + 1 and x → x + x don't commute.
	var order, want []int
	const lists = 20
	value, ended := float32(1), make(chan error, lists)
	for i := range lists {
		l := s.NewList()
		if i%3 == 0 {
			l.Add(x, x, x)
			value += value
		} else {
			one := l.AllocLike(x)
			l.Fill(one, 1)
			l.Add(x, x, one)
			l.Free(one)
			value++
		}
		s.Submit(l, func(err error) { order = append(order, i); ended <- err })
		want = append(want, i)
	}
	for range lists {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	got := make([]float32, 1000)
	l := s.NewList()
	l.Fetch(tensorops.HostBytes(got), x)
	l.Free(x)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	if got[0] != value || got[999] != value {
		t.Errorf("the lists gave %g and %g, in their order they give %g", got[0], got[999], value)
	}
	if !slices.Equal(order, want) {
		t.Errorf("completions came in the order %d", order)
	}
}

func recordingError(t T, dev tensorops.Device) {
	s := dev.NewStream("recording")
	defer s.Close()
	b := newBuilder(s, "recording")
	x := b.normal(4)
	b.Add(x, x, b.normal(5))
	b.Fill(x, 0)
	_, err := b.run(s)
	if !errors.Is(err, tensorops.ErrShape) || !strings.Contains(err.Error(), "float32[5]") {
		t.Errorf("error %v, want ErrShape with the shapes", err)
	}
}

func stopsAtError(t T, dev tensorops.Device) {
	s := dev.NewStream("stops")
	defer s.Close()
	b := newBuilder(s, "stops")
	x := b.normal(4)
	b.Fill(x, 1)
	b.Embed(b.garbage(1, 2), b.normal(3, 2), b.ints([]int32{3}, 1))
	b.Fill(x, 2)
	if err := tensorops.Run(s, b.List); !errors.Is(err, tensorops.ErrToken) {
		t.Fatalf("error %v, want ErrToken", err)
	}
	got := make([]float32, 4)
	l := s.NewList()
	l.Fetch(tensorops.HostBytes(got), x)
	for _, held := range b.tensors {
		l.Free(held)
	}
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	if got[0] != 1 {
		t.Errorf("the tensor is %g after the failed list, want 1", got[0])
	}
}

// lent makes a tensor in a stream's memory, for another stream to free.
func lent(t T, s tensorops.Stream) tensorops.Tensor {
	t.Helper()
	l := s.NewList()
	x := l.Alloc(tensorops.Float32, 1000)
	l.Fill(x, 1)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	return x
}

func goesBack(t T, dev tensorops.Device) {
	a, b := dev.NewStream("a"), dev.NewStream("b")
	defer a.Close()
	defer b.Close()
	before := dev.Memory().InUse
	x := lent(t, a)
	if dev.Memory().InUse <= before {
		t.Errorf("%d bytes in use with a tensor, %d without", dev.Memory().InUse, before)
	}
	l := b.NewList()
	l.Fill(x, 2)
	l.Free(x)
	if err := tensorops.Run(b, l); err != nil {
		t.Error(err)
	}
	if got := dev.Memory().InUse; got != before {
		t.Errorf("%d bytes in use after the list that freed the tensor, %d before", got, before)
	}
}

func goesBackRefused(t T, dev tensorops.Device) {
	a, b := dev.NewStream("a"), dev.NewStream("b")
	defer a.Close()
	before := dev.Memory().InUse
	x := lent(t, a)
	l := b.NewList()
	l.Free(x)
	b.Close()
	if err := tensorops.Run(b, l); !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	if got := dev.Memory().InUse; got != before {
		t.Errorf("%d bytes in use after the refused list that freed the tensor, %d before", got, before)
	}
}

func collectiveError(t T, dev tensorops.Device) {
	s := dev.NewStream("collective")
	defer s.Close()
	g, outcome := blocked(s)
	lost := errors.New("peer lost")
	g.result <- lost
	if err := <-outcome; !errors.Is(err, lost) {
		t.Errorf("error %v, want the group's", err)
	}
}

func collectiveWaits(t T, dev tensorops.Device) {
	// More streams wait than any device under test has cores.
	const waiting = 8
	var gates []*gate
	var outcomes []<-chan error
	for range waiting {
		s := dev.NewStream("waits")
		defer s.Close()
		g, outcome := blocked(s)
		gates, outcomes = append(gates, g), append(outcomes, outcome)
	}
	s := dev.NewStream("works")
	defer s.Close()
	b := newBuilder(s, "works")
	b.Fill(b.garbage(5), 1)
	if _, err := b.run(s); err != nil {
		t.Error(err)
	}
	for i, g := range gates {
		g.result <- nil
		if err := <-outcomes[i]; err != nil {
			t.Error(err)
		}
	}
}

func fullQueue(t T, dev tensorops.Device) {
	s := dev.NewStream("full")
	defer s.Close()
	g, outcome := blocked(s)
	outcomes := []<-chan error{outcome}
	for range tensorops.LimitStreamQueue {
		outcomes = append(outcomes, submit(s, s.NewList()))
	}
	if err := <-submit(s, s.NewList()); !errors.Is(err, tensorops.ErrQueueFull) {
		t.Errorf("error %v, want ErrQueueFull", err)
	}
	g.result <- nil
	for i, outcome := range outcomes {
		if err := <-outcome; err != nil {
			t.Errorf("list %d: %v", i, err)
		}
	}
}

func closedStream(t T, dev tensorops.Device) {
	s := dev.NewStream("closed")
	l := s.NewList()
	s.Close()
	s.Close() // once more does no harm
	if err := tensorops.Run(s, l); !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

func closeFailsWaiting(t T, dev tensorops.Device) {
	s := dev.NewStream("closing")
	g, running := blocked(s)
	waiting := submit(s, s.NewList())
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	for !refuses(s) {
		time.Sleep(time.Millisecond)
	}
	g.result <- nil
	if err := <-running; err != nil {
		t.Errorf("the running list: %v", err)
	}
	if err := <-waiting; !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("the waiting list: error %v, want ErrClosed", err)
	}
	<-closed
}

// refuses reports whether the stream refuses a list because it is being closed:
// one that it takes has to wait.
func refuses(s tensorops.Stream) bool {
	select {
	case err := <-submit(s, s.NewList()):
		return errors.Is(err, tensorops.ErrClosed)
	default:
		return false
	}
}

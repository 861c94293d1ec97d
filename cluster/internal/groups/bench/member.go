package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/groups"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// Environment variables that make this program a member.
const (
	rankVariable   = "GROUPS_BENCH_RANK"
	sharedVariable = "GROUPS_BENCH_SHARED"
)

// order is a line of JSON to a process; Peers comes first.
type order struct {
	Peers []string `json:",omitempty"`
	What  string
	Size  int
	Count int
}

// reply is a line of JSON from one.
type reply struct {
	Address string
	Nanos   int64 // for one
	Error   string
}

// processes is a set of processes that obey the same orders.
type processes struct {
	cmds []*exec.Cmd
	ins  []io.Closer
	enc  []*json.Encoder
	outs []*bufio.Reader
}

func (p *processes) start(cmd *exec.Cmd) error {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmds, p.ins = append(p.cmds, cmd), append(p.ins, in)
	p.enc, p.outs = append(p.enc, json.NewEncoder(in)), append(p.outs, bufio.NewReader(out))
	return nil
}

func (p *processes) replies() (list []reply, err error) {
	for i, out := range p.outs {
		line, err := out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
		var r reply
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("process %d replied %q: %w", i, line, err)
		}
		if r.Error != "" {
			return nil, fmt.Errorf("process %d: %s", i, r.Error)
		}
		list = append(list, r)
	}
	return list, nil
}

func (p *processes) orders(o order) error {
	for _, enc := range p.enc {
		if err := enc.Encode(o); err != nil {
			return err
		}
	}
	return nil
}

func (p *processes) measure(what string, size, count int) (time.Duration, error) {
	if err := p.orders(order{What: what, Size: size, Count: count}); err != nil {
		return 0, err
	}
	list, err := p.replies()
	slowest := int64(0)
	for _, r := range list {
		slowest = max(slowest, r.Nanos)
	}
	return time.Duration(slowest), err
}

func (p *processes) close() {
	for _, in := range p.ins {
		_ = in.Close()
	}
	for _, cmd := range p.cmds {
		_ = cmd.Wait()
	}
}

// startMembers runs this program again, once for each member.
func startMembers(n int, shared bool, threads int) (side, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &processes{}
	for rank := range n {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprint(rankVariable, "=", rank), fmt.Sprint(sharedVariable, "=", shared),
			fmt.Sprint("GOMAXPROCS=", threads))
		if err := p.start(cmd); err != nil {
			p.close()
			return nil, err
		}
	}
	list, err := p.replies()
	if err == nil {
		var peers []string
		for _, r := range list {
			peers = append(peers, r.Address)
		}
		if err = p.orders(order{Peers: peers}); err == nil {
			_, err = p.replies()
		}
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func id(i int) lane.ID { return lane.ID{'p', byte(i + 1)} }

// member is one process.
type member struct {
	rank, n int
	node    *lane.Node
	group   *collective.Group
	raw     *lane.Group
	arena   tensorops.Arena
	tensors map[int]tensorops.Tensor
	came    chan int // bytes of messages that have come over raw
	from    []byte   // what is sent over raw, and where it is read into: as long as the collective's tensors
	into    []byte
}

func playMember() error {
	rank, err := strconv.Atoi(os.Getenv(rankVariable))
	if err != nil {
		return err
	}
	m := &member{rank: rank, arena: tensorops.NewHostMemory(0).NewArena("bench"), tensors: make(map[int]tensorops.Tensor),
		came: make(chan int, 4096)}
	m.node = lane.New(lane.Config{Self: id(rank), NoSharedMemory: os.Getenv(sharedVariable) == "false",
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}})
	defer m.node.Close()
	m.raw = m.node.Open(lane.ID{'r', 'a', 'w'}, func(_ lane.ID, header []byte, lens []int) ([][]byte, func(error), error) {
		if len(lens) == 0 {
			return nil, func(error) { m.came <- 0 }, nil
		}
		at := binary.LittleEndian.Uint64(header)
		return [][]byte{m.into[at:][:lens[0]]}, func(error) { m.came <- lens[0] }, nil
	})
	port := groups.New(m.node, id(rank), lane.ID{'g'}, groups.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { // ends with the process
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { m.node.Accept(conn, nil) }()
		}
	}()
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	if err := out.Encode(reply{Address: l.Addr().String()}); err != nil {
		return err
	}
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var r reply
		if o.Peers != nil {
			err = m.join(port, o.Peers)
		} else {
			r.Nanos, err = m.measure(o)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

func (m *member) join(port *groups.Port, peers []string) (err error) {
	m.n = len(peers)
	ids := make([]lane.ID, m.n)
	for i, address := range peers {
		if ids[i] = id(i); i != m.rank {
			m.node.SetPeer(ids[i], address)
		}
	}
	m.group, err = port.Open("bench", ids, m.rank)
	return err
}

func (m *member) tensor(size int) (tensorops.Tensor, error) {
	if x, ok := m.tensors[size]; ok {
		return x, nil
	}
	x, err := tensorops.NewTensor(m.arena, tensorops.Float32, size/4)
	if err == nil {
		clear(tensorops.Bytes(x))
		m.tensors[size] = x
	}
	return x, err
}

func (m *member) measure(o order) (int64, error) {
	ctx := context.Background()
	if (o.What == "lane" || o.What == "exchange") && len(m.from) != o.Size {
		m.from, m.into = make([]byte, o.Size), make([]byte, o.Size)
		for i := 0; i < o.Size; i += 512 { // else it is the system's one page of zeros
			m.from[i], m.into[i] = 1, 1
		}
	}
	if err := m.group.Barrier().Wait(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	switch o.What {
	case "latency":
		for range o.Count {
			for to := range m.n {
				if to != m.rank {
					m.send(to, nil, nil)
				}
			}
			for range m.n - 1 {
				<-m.came
			}
		}
	case "exchange":
		part := m.from[:o.Size/m.n]
		for range o.Count {
			m.exchange(part)
		}
	case "lane":
		m.lane(o.Size, o.Count)
	default:
		whole, err := m.tensor(o.Size)
		if err != nil {
			return 0, err
		}
		part, err := m.tensor(o.Size / m.n)
		if err != nil {
			return 0, err
		}
		for range o.Count {
			var h *collective.Handle
			switch o.What {
			case "all_reduce":
				h = m.group.AllReduce(whole, tensorops.Sum)
			case "reduce_scatter":
				h = m.group.ReduceScatter(part, whole, 0, tensorops.Sum)
			case "all_gather":
				h = m.group.AllGather(whole, part, 0)
			default:
				return 0, fmt.Errorf("unknown collective %q", o.What)
			}
			if err := h.Wait(ctx); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(start).Nanoseconds() / int64(o.Count), nil
}

func (m *member) send(to int, header []byte, payload [][]byte) {
	m.raw.Send(id(to), header, payload, nil)
}

// exchange sends a part to each of the others, and waits for theirs.
func (m *member) exchange(part []byte) {
	for to := range m.n {
		for at := 0; to != m.rank && at < len(part); at += messageBytes {
			m.send(to, binary.LittleEndian.AppendUint64(nil, uint64(at)), [][]byte{part[at:min(at+messageBytes, len(part))]})
		}
	}
	for left := len(part) * (m.n - 1); left > 0; {
		left -= <-m.came
	}
}

// messageBytes is the length of the messages that measure the lane alone.
const messageBytes = 1 << 20

// lane sends a buffer of the collective's size to the others, a message to each by turns, while they send as much,
// and waits for the incoming data, which is read into a buffer of that size.
func (m *member) lane(size, times int) {
	left := 0
	for range times {
		to := m.rank
		for at := 0; at < size; at += messageBytes {
			if to = (to + 1) % m.n; to == m.rank {
				to = (to + 1) % m.n
			}
			b := m.from[at:min(at+messageBytes, size)]
			m.send(to, binary.LittleEndian.AppendUint64(nil, uint64(at)), [][]byte{b})
			left += len(b)
		}
	}
	for left > 0 {
		left -= <-m.came
	}
}

package cluster

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

var updateAccess = flag.Bool("update", false, "rewrite the tables of SECURITY.md")

// everyRole lists the roles, and "" for a process without a certificate.
var everyRole = []pki.Role{pki.Coordinator, pki.Worker, pki.Operator, pki.Viewer, ""}

func kindsOfOneof(m proto.Message) (fields []protoreflect.FieldDescriptor) {
	all := m.ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range all.Len() {
		fields = append(fields, all.Get(i))
	}
	return fields
}

// cell formats a table's cell.
func cell(yes bool) string {
	if yes {
		return "yes"
	}
	return "–"
}

// accessTables makes SECURITY.md's tables from the program.
func accessTables() string {
	var b strings.Builder
	b.WriteString("| protocol, or request of `api` | coordinator | worker | operator | viewer | no certificate |\n|---|---|---|---|---|---|\n")
	row := func(name string, roles []pki.Role, none bool) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, role := range everyRole {
			fmt.Fprintf(&b, " %s |", cell(slices.Contains(roles, role) || role == "" && none))
		}
		b.WriteByte('\n')
	}
	for _, protocol := range slices.Sorted(maps.Keys(protocolRoles)) {
		row("`"+protocol+"`", protocolRoles[protocol], protocol == transport.ProtocolJoin)
	}
	for _, request := range slices.Sorted(maps.Keys(requestRoles)) {
		row("`api`: "+request, requestRoles[request], false)
	}
	b.WriteString("\n| message between actors | for | over | accepted only from |\n|---|---|---|---|\n")
	for _, k := range actors.MessageKinds() {
		to, over := "a stage", "link"
		if k.ToBoss {
			to = "the coordinator"
		}
		if k.Bulk {
			over = "lane"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", k.Name, to, over, k.From)
	}
	b.WriteString("\n| control message | accepted only from |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(controlSenders)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, controlSenders[name])
	}
	return b.String()
}

// TestSecurityTables: the tables in SECURITY.md match the program, and have a row for everything that package wire defines.
func TestSecurityTables(t *testing.T) {
	const path, begin, end = "../SECURITY.md", "<!-- tables: go test ./cluster -run TestSecurityTables -update -->\n",
		"<!-- end of tables -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	got, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("SECURITY.md has no tables")
	}
	want := "\n" + accessTables() + "\n"
	if *updateAccess {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("the tables of SECURITY.md are out of date; run go test ./cluster -run TestSecurityTables -update. It has\n%s\nwant\n%s", got,
			want)
	}
	for _, f := range kindsOfOneof(&wire.ApiRequest{}) {
		if requestRoles[string(f.Name())] == nil {
			t.Errorf("nothing says who may ask for %s", f.Name())
		}
	}
	for _, f := range kindsOfOneof(&wire.Control{}) {
		if controlSenders[string(f.Name())] == "" {
			t.Errorf("nothing says who may send %s", f.Name())
		}
	}
	if n := len(kindsOfOneof(&wire.ApiRequest{})); n != len(requestRoles) {
		t.Errorf("%d requests have roles, there are %d", len(requestRoles), n)
	}
	if n := len(kindsOfOneof(&wire.Control{})); n != len(controlSenders) {
		t.Errorf("%d control messages have senders, there are %d", len(controlSenders), n)
	}
}

// TestProtocolByRole checks every cell of the table of protocols. Each protocol that a coordinator or worker accepts has a row.
func TestProtocolByRole(t *testing.T) {
	want := map[string]string{"join": "cwov", "renew": "cwov", "control": "cw", "lane": "cw", "probe": "cw", "beat": "w", "log": "w",
		"api": "ov", "other": ""}
	for protocol := range protocolRoles {
		if _, known := want[protocol]; !known {
			t.Errorf("the protocol %s has no row here", protocol)
		}
	}
	for protocol, roles := range want {
		for _, role := range everyRole {
			may := role != "" && strings.Contains(roles, string(role[0]))
			if got := allow(transport.Peer{Name: "x", Role: string(role)}, protocol); got != may {
				t.Errorf("%s for a process with the role %q: %v", protocol, role, got)
			}
		}
	}
}

// TestRequestByRole sends a coordinator every request in each role.
func TestRequestByRole(t *testing.T) {
	want := map[string]string{"submit": "o", "control": "o", "drain": "o", "tokens": "o", "forecast": "o", "follow": "ov", "list": "ov",
		"status": "ov", "logs": "ov", "members": "ov", "record": "ov", "actions": "ov"}
	c := deaf(t)
	c.cfg.RemoteTokens = true
	var err error
	if c.authority, err = pki.NewAuthority(time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, f := range kindsOfOneof(&wire.ApiRequest{}) {
		name := string(f.Name())
		roles, known := want[name]
		if !known {
			t.Errorf("the request %s has no row here", name)
		}
		for _, role := range everyRole {
			r := &wire.ApiRequest{Version: apiVersion}
			r.ProtoReflect().Set(f, r.ProtoReflect().NewField(f))
			text, err := proto.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			came := request(c, role, append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...), 5*time.Second)
			var reply wire.ApiReply
			if len(came) < 4 || proto.Unmarshal(came[4:4+min(len(came)-4, int(binary.LittleEndian.Uint32(came)))], &reply) != nil {
				t.Errorf("%s, asked by a %q: %d bytes", name, role, len(came))
				continue
			}
			refused := reply.GetError() != nil && reply.GetError().GetKind() == wire.ApiError_FORBIDDEN
			if may := role != "" && strings.Contains(roles, string(role[0])); refused == may {
				t.Errorf("%s, asked by a %q: %v", name, role, &reply)
			}
		}
	}
}

// TestControlBySender: a worker accepts control messages only from its coordinator. The coordinator accepts a reply only from
// the worker that it asked, and messages about an attempt only from workers of that attempt.
func TestControlBySender(t *testing.T) {
	boss, other, asked := uuid.New(), uuid.New(), uuid.New()
	for _, f := range kindsOfOneof(&wire.Control{}) {
		name := string(f.Name())
		message := func() *wire.Control {
			m := &wire.Control{Request: 7}
			m.ProtoReflect().Set(f, m.ProtoReflect().NewField(f))
			return m
		}
		net := transport.NewMemory().Listen("w", nil, transport.Handlers{})
		m := &membership{worker: &worker{log: deaf(t).log}, parts: make(map[uuid.UUID]*part), coordinator: &wire.Peer{Incarnation: boss[:]}}
		m.mesh = mesh.New(mesh.Config{Self: uuid.New(), Name: "w", Logger: m.log}, net)
		for i, from := range []uuid.UUID{other, {}, asked} {
			m.control(from, message())
			if n := m.mesh.Refused(); n != int64(i+1) {
				t.Errorf("%s from another process than the coordinator: %d of %d refused", name, n, i+1)
			}
		}
		m.running.Wait()
		if len(m.parts) != 0 {
			t.Errorf("%s from another process than the coordinator has begun something", name)
		}
		m.mesh.Close()
		net.Close()

		c := deaf(t)
		a := &attempt{c: c, id: uuid.New(), answers: make(chan answer, 2)}
		c.workers[asked] = &workerState{attempt: a}
		c.workers[other] = &workerState{}
		reply := make(chan *wire.Control, 1)
		c.asked[7] = question{asked, reply}
		about := message()
		switch k := about.Kind.(type) {
		case *wire.Control_Assigned:
			k.Assigned.Attempt = a.id[:]
		case *wire.Control_Released:
			k.Released.Attempt = a.id[:]
		}
		for _, from := range []uuid.UUID{other, {}, uuid.New()} {
			c.control(from, about)
			if len(reply) != 0 || len(a.answers) != 0 || c.workers[asked].attempt != a {
				t.Errorf("%s from a worker that was not asked counts", name)
			}
		}
		if c.control(asked, message()); len(reply) != 1 {
			t.Errorf("%s from the worker that was asked does not count", name)
		}
		about.Request = 0
		c.control(asked, about)
		if counts := len(a.answers) == 1 || c.workers[asked].attempt == nil; counts != (controlSenders[name] == fromAssigned) {
			t.Errorf("%s from a worker of the attempt: counts %v", name, counts)
		}
	}
}

// TestStatusOfOwnRanks: the coordinator accepts a worker's status only for that worker's ranks.
func TestStatusOfOwnRanks(t *testing.T) {
	c := deaf(t)
	net := transport.NewMemory().Listen("boss", nil, transport.Handlers{})
	c.mesh = mesh.New(mesh.Config{Self: uuid.New(), Name: coordinatorName, Logger: c.log}, net)
	defer net.Close()
	defer c.mesh.Close()
	mine, others := &share{ranks: []int{0}}, &share{ranks: []int{1}}
	mine.ID, mine.Name, others.ID = uuid.New(), "mine", uuid.New()
	a := &attempt{c: c, id: uuid.New(), shares: []*share{mine, others}, memory: make(map[int]int64)}
	for rank, refused := range map[int]int64{0: 0, 1: 1, 9: 1, -1: 1} {
		before := c.mesh.Refused()
		a.observe(mine.Member, &wire.StatusReply{Attempt: a.id[:], Actors: []*wire.Snapshot{actors.PackSnapshot(event.Snapshot{Actor: "stage 0",
			Rank: rank, Doing: event.Waiting, Since: time.Now()}, func(t time.Time) time.Time { return t })},
			Memory: []*wire.RankMemory{{Rank: apiwire.Small(rank), Bytes: 5}}})
		if n := c.mesh.Refused() - before; n != refused {
			t.Errorf("the status of rank %d: %d refused, want %d", rank, n, refused)
		}
		if got := a.memory[rank]; (got == 5) != (rank == 0) {
			t.Errorf("the memory of rank %d counts as %d", rank, got)
		}
	}
}

package process

import "time"

// Unit is the unit of a metric: the end of its name.
type Unit string

// The units.
const (
	Number  Unit = ""
	Seconds Unit = "seconds"
	Bytes   Unit = "bytes"
)

// Figure is a metric of a process in a state S.
type Figure[S any] struct {
	Metric string // after "engine_" in Prometheus, without the unit and "_total"
	Unit   Unit
	Help   string // a sentence
	Total  bool   // it only grows
	Labels []string
	// Each calls tell with each value and its labels.
	Each func(s *S, tell func(v float64, labels ...string))
}

// Name is the metric's name after "engine_", with its unit.
func (f *Figure[S]) Name() string {
	name := f.Metric
	if f.Unit != Number {
		name += "_" + string(f.Unit)
	}
	if f.Total {
		name += "_total"
	}
	return name
}

// LimitSeries bounds the values of one figure, such as the workers or the ranks with their own series.
const LimitSeries = 4096

// Coordinator is the state of a coordinator.
type Coordinator struct {
	Build    string
	Workers  []Member       // in the order in which they joined
	Rejected int            // workers that try to join, and that the coordinator can't reach
	Joins    uint64         // workers that have joined since the start
	Left     uint64         // workers that have left after a goodbye
	Failed   uint64         // workers that were removed for any other reason
	Runs     map[string]int // listed runs by state
	Restarts uint64         // of runs, after a worker failed
	Tokens   map[string]int // valid tokens by role
	Frozen   float64        // seconds of the last freeze of this process
}

// Member is a worker as its coordinator sees it.
type Member struct {
	Name  string
	Busy  bool          // it has ranks of a run
	Heard time.Duration // age of its last beat
	Ahead time.Duration // how far its clock is ahead of the coordinator's
}

// Worker is the state of a worker.
type Worker struct {
	Build  string
	Joined bool          // it is a member of the cluster
	Joins  uint64        // how often it has become a member
	Heard  time.Duration // age of the coordinator's last beat
	Ranks  []Rank
	Lanes  []Lane
}

// Rank is a rank that a worker computes.
type Rank struct {
	Rank        string
	MemoryBytes int64 // peak of its tensors; 0: not known
}

// Lane counts the tensors to and from another process.
type Lane struct {
	Peer           string
	Sent, Received uint64 // bytes
}

// Server is the state of a server that generates texts.
type Server struct {
	Build            string
	Running, Waiting int    // texts that are being generated, and that wait
	Texts            uint64 // that have ended
	PromptTokens     uint64 // of these
	Tokens           uint64 // generated for these
	Answered         uint64 // requests with an answer
	Refused          uint64 // requests with an error
}

package scheduler

// Cause says why a rank computed nothing for some time.
type Cause uint8

// The causes of gaps; see Step.Idle.
const (
	WarmUp    Cause = iota // the rank's first input had not arrived yet
	Waits                  // an input had not arrived
	Starved                // the tokens or targets that the action reads had not arrived
	Credit                 // no credit: the receiver had not consumed earlier outputs
	Between                // no known cause: everything the action needs was there
	CoolDown               // the rank had finished, other ranks had not
	Optimizer              // the end of the step: norms, the decision about the update, and the update
	Experts                // in a table that is cut: tokens had not arrived at their experts, or results had not come back
)

var causes = [...]string{"warm-up", "waits", "starved of data", "credit", "between actions", "cool-down", "optimizer", "waits for experts"}

func (c Cause) String() string { return causes[min(int(c), len(causes)-1)] }

// Gap is a period in which a rank computes nothing. Times are milliseconds since the start of the
// step.
type Gap struct {
	Start, End float64
	Cause      Cause
	Next       int // position of the action after the gap; −1: none
	// From is the rank that provides what was missing. Needs is the action that was waited for: its
	// output, or for a credit its start. For WarmUp they describe the first action's input; From is
	// −1 if the action has no input.
	From  int
	Needs Action
	// MessageMS is, for WarmUp and Waits, the part of the gap after the end of Needs, while the
	// output was in transit.
	MessageMS float64
}

// Len returns the gap's length in milliseconds.
func (g Gap) Len() float64 { return g.End - g.Start }

// Idle returns, for each rank, the gaps between the start and the end of the step, in order, each
// with its cause. If a rank's last actions have no times, the rest of the step after its last timed
// action is one gap with the cause Between.
//
// A gap before an action has one cause: the condition that was met last.
//
//   - WarmUp: the gap is before the rank's first action, whose input came from another rank.
//   - Waits: the action's input, the output of action Needs on rank From, was not ready when
//     this rank became free. MessageMS is the part of the gap after the end of Needs. A message
//     in transit when the rank became free also counts as a wait, if the time until the start
//     is at most that of the fastest message between the two ranks.
//   - Credit: action Needs on rank From had not started. Its start returned the credit for this
//     action's output.
//   - Starved: none of these, and the action is a forward of the first chunk, which reads
//     tokens, or of the last, which reads targets. Its inputs from other ranks had arrived, and
//     its rank was free.
//   - Between: none of these. The rank received, recorded and sent messages; with
//     post-validation it also updated its weights.
//
// After a rank's last action the gap is CoolDown until the last action of all ranks ends, and
// Optimizer from there to StepMS.
//
// The gaps of all ranks add up to the step's bubble: the number of ranks times StepMS, minus the
// time of all actions. Idle returns ErrTable or ErrTimes for impossible sizes or times.
func (s *Step) Idle() ([][]Gap, error) {
	m, err := s.measure()
	if err != nil {
		return nil, err
	}
	last := 0.0
	for _, row := range s.MS {
		for _, at := range row {
			last = max(last, at[1])
		}
	}
	end := max(last, s.StepMS)
	gaps := make([][]Gap, len(s.MS))
	for r, row := range s.MS {
		free := 0.0 // since this time
		for i, at := range row {
			a := s.Table.Ranks[r][i]
			switch inside := i > 0 && s.Table.Ranks[r][i-1].Overlap; {
			case a.Type.IsExchange(): // it takes no time of the rank
				continue
			case later(at[0], free) && a.Part > 0 && inside:
				gaps[r] = append(gaps[r], Gap{Start: free, End: at[0], Cause: Experts, Next: i, From: -1})
			case later(at[0], free):
				gaps[r] = append(gaps[r], m.gap(place{r, i}, free))
			}
			free = max(free, at[1])
		}
		if later(last, free) {
			cause := CoolDown
			if len(row) < len(s.Table.Ranks[r]) {
				cause = Between
			}
			gaps[r] = append(gaps[r], Gap{Start: free, End: last, Cause: cause, Next: -1, From: -1})
			free = last
		}
		if later(end, free) {
			gaps[r] = append(gaps[r], Gap{Start: free, End: end, Cause: Optimizer, Next: -1, From: -1})
		}
	}
	return gaps, nil
}

// gap returns the gap before an action, from the time when its rank became free.
func (m *measured) gap(p place, free float64) Gap {
	g := Gap{Start: free, End: m.start(p), Cause: Between, Next: p.position, From: -1}
	over := free // end of its latest wait
	m.eachCredit(p, func(from place) {
		if at := m.start(from); later(at, over) {
			over = at
			g.Cause, g.From, g.Needs = Credit, from.rank, m.action(from)
		}
	})
	m.eachInput(p, func(from place) {
		if at := m.end(from) + m.message(from.rank, p.rank); later(at, over) {
			over = at
			g.Cause, g.From, g.Needs, g.MessageMS = Waits, from.rank, m.action(from), max(0, g.End-max(m.end(from), free))
		}
	})
	if _, later := m.before(p); !later && g.Cause == Waits {
		g.Cause = WarmUp
	}
	if g.Cause != Between {
		return g
	}
	first, last := m.partners(p)
	for i := first; i <= last; i++ {
		if a := m.Table.Ranks[p.rank][i]; a.Type == F && (a.Chunk == 0 || int(a.Chunk) == m.Table.NumChunks-1) {
			g.Cause = Starved
		}
	}
	return g
}

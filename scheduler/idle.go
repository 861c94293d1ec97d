package scheduler

// Cause says why a rank computed nothing for a while.
type Cause uint8

// The causes of gaps, see Idle.
const (
	WarmUp    Cause = iota // the step has not come to the rank yet
	Waits                  // an input was not there
	Starved                // the data that the action reads was not there
	Credit                 // who takes the output had not taken earlier ones
	Between                // nothing that is known: everything was there
	CoolDown               // the rank is done, and others are not
	Optimizer              // the step's end: norms, the decision about the update, and what follows
)

var causes = [...]string{"warm-up", "waits", "starved of data", "credit", "between actions", "cool-down", "optimizer"}

func (c Cause) String() string { return causes[min(int(c), len(causes)-1)] }

// Gap is a time in which a rank computes nothing.
type Gap struct {
	Start, End float64
	Cause      Cause
	Next       int // position of the action that comes behind it; −1: none
	// From is the rank that has to provide what is missing, and Needs the action that is waited for: its
	// output, or of a credit its start. Of WarmUp they are the first action's; From is −1 where there are none.
	From  int
	Needs Action
	// MessageMS is, of WarmUp and Waits, the part of the gap behind the end of Needs: the output is on its way.
	MessageMS float64
}

// Len is its time.
func (g Gap) Len() float64 { return g.End - g.Start }

// Idle returns, for each rank, the gaps between the step's begin and its end, in order, each with its cause. A rank whose
// last actions have no times has the gap behind its last one up to the latest time as a wait for nobody knows what, with the
// cause Between.
//
// A gap before an action is of one cause, that which was over last:
//
//   - WarmUp: it is before the rank's first action, whose input came from another rank.
//   - Waits: an input of the action was not made when the rank became free, by the action Needs of the rank From. The part
//     behind Needs' end is MessageMS. A message that is under way as the rank becomes free is a wait too, if the time
//     until the start is not more than the fastest one between those ranks took.
//   - Credit: the action Needs of the rank From had not begun, by which a credit for the output came back.
//   - Starved: none of these, and the action is a forward of the first chunk, which reads tokens, or of the last, which reads
//     targets: its inputs from other ranks were there, and its rank was free.
//   - Between: none of these. The rank received, recorded and sent; with post-validation it updated its weights.
//
// Behind a rank's last action the gap is CoolDown up to the end of all ranks' last one, and Optimizer from there to StepMS.
//
// The gaps of all ranks add up to the step's bubble: ranks times StepMS without the times of actions.
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
		free := 0.0 // since when
		for i, at := range row {
			if later(at[0], free) {
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

// gap is the one before an action, from when its rank was free.
func (m *measured) gap(p place, free float64) Gap {
	g := Gap{Start: free, End: m.start(p), Cause: Between, Next: p.position, From: -1}
	over := free // when the latest of its waits was
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

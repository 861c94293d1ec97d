package event

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// Status is the state of every actor of a run.
type Status struct {
	Time time.Time
	// Step is the last finished step, of Steps, and Remaining an estimate of the time for the others; 0: not known yet.
	// A coordinator's answer does not have them.
	Step, Steps int64
	Remaining   time.Duration
	Actors      []Snapshot
	Requests    []Change // open requests
	// Cut are the known broken links between the run's processes.
	Cut []CutLink
}

// String is the status as text: a line for each actor, the root of the waits, and the open requests.
func (s Status) String() string {
	return s.tableWith(s.Explain(), s.Requested())
}

// Table has a line for each actor, and a line with the open requests.
func (s Status) Table() string {
	return s.tableWith(s.Requested())
}

// tableWith is the table with more lines after it. It leaves out empty lines.
func (s Status) tableWith(lines ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	elsewhere, host := s.hosts(), ""
	if elsewhere {
		host = "HOST\t"
	}
	fmt.Fprintln(w, "ACTOR\t"+host+"STEP\tDOING\tWAITS FOR\tFROM\tSINCE")
	for _, a := range s.Actors {
		if elsewhere {
			host = orDash(a.Host) + "\t"
		}
		fmt.Fprintf(w, "%s\t%s%d\t%s\t%s\t%s\t%.1f s\n",
			a.Actor, host, a.Step, a.doing(), orDash(a.waitsFor()), orDash(a.From), s.Time.Sub(a.Since).Seconds())
	}
	w.Flush() //nolint:errcheck // a strings.Builder does not fail
	for _, line := range lines {
		if line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// Requested lists the open requests in one line; "": there are none.
func (s Status) Requested() string {
	if len(s.Requests) == 0 {
		return ""
	}
	var all []string
	for _, c := range s.Requests {
		all = append(all, c.String())
	}
	return "requested: " + strings.Join(all, "; ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

var passes = map[scheduler.Type]string{scheduler.F: "forward", scheduler.I: "input gradient", scheduler.W: "weight gradient",
	scheduler.B: "backward"}

// describe names an action for a person: the cell of the table, with its pass, microbatch and chunk in words.
func describe(a scheduler.Action) string {
	return fmt.Sprintf("%v (%s of microbatch %d on chunk %d)", a, passes[a.Type], a.Microbatch, a.Chunk)
}

func (s Snapshot) doing() string {
	switch {
	case s.Doing == Running:
		return "running " + describe(s.Action)
	case s.Doing == Waiting && s.Action != (scheduler.Action{}):
		return "waiting to run " + describe(s.Action)
	case s.Phase != 0:
		return fmt.Sprintf("%v (%v)", s.Doing, s.Phase)
	}
	return s.Doing.String()
}

func (s Snapshot) waitsFor() string {
	switch s.Wait {
	case WaitActivation:
		return "activation " + describe(s.Needs)
	case WaitGradient:
		return "gradient " + describe(s.Needs)
	case WaitTokens:
		return fmt.Sprintf("tokens of microbatch %d", s.Needs.Microbatch)
	case WaitCredit:
		return fmt.Sprintf("a credit from chunk %d, which has not consumed earlier inputs (%d held, %d needed)", s.Needs.Chunk, s.Held, s.Need)
	case WaitTied:
		return "gradient of the tied weight"
	case WaitOrder:
		return "its next order"
	case WaitStages:
		return fmt.Sprintf("stage reports (%d of %d received)", s.Held, s.Need)
	case WaitDecision:
		if s.Doing == Waiting { // it already works on the next order
			return "the decision on the previous step"
		}
		return "the decision on the step"
	case WaitDisk:
		return "a write to disk"
	case WaitGroup:
		return s.Collective
	case WaitState:
		return "the weights and optimizer state of a rank whose shadow it holds"
	case WaitShadow:
		return fmt.Sprintf("the gradients of the step at the shadows (%d of %d ranks done)", s.Held, s.Need)
	case WaitRoom:
		return "room for another output: it is at its limit"
	}
	return ""
}

// name is the actor's name with its worker.
func (s Snapshot) name() string {
	if s.Host == "" {
		return s.Actor
	}
	return s.Actor + " on " + s.Host
}

// Describe says what the actor is doing and what it waits for.
func (s Snapshot) Describe() string {
	text := s.Actor + " " + s.doing()
	if w := s.waitsFor(); w != "" {
		text += ", waiting for " + w
		if s.From != "" {
			text += " from " + s.From
		}
	}
	return text
}

package event

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// Status is what every actor of a run is doing.
type Status struct {
	Time     time.Time
	Actors   []Snapshot
	Requests []Change // that are not done yet
	// Cut are the links between the run's processes on which nothing arrives, as far as it is known.
	Cut []CutLink
}

// String is the table that a person reads, and the root of the waits.
func (s Status) String() string {
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
		fmt.Fprintf(w, "%s\t%s%d\t%s\t%s\t%s\t%.1f s\n", a.Actor, host, a.Step, a.doing(), orDash(a.waitsFor()), orDash(a.From), s.Time.Sub(a.Since).Seconds())
	}
	w.Flush() //nolint:errcheck // a strings.Builder does not fail
	if e := s.Explain(); e != "" {
		fmt.Fprintf(&b, "%s\n", e)
	}
	if text := s.Requested(); text != "" {
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.String()
}

// Requested lists the requests that are not done yet in one line; "": there are none.
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

var passes = map[scheduler.Type]string{scheduler.F: "forward", scheduler.I: "input gradient", scheduler.W: "weight gradient", scheduler.B: "backward"}

// describe names an action for a person: the cell of the table, with stage and
// microbatch in words.
func describe(a scheduler.Action) string {
	return fmt.Sprintf("%v (%s of microbatch %d on chunk %d)", a, passes[a.Type], a.Microbatch, a.Chunk)
}

func (s Snapshot) doing() string {
	switch {
	case s.Doing == Running, s.Doing == Waiting && s.Action != (scheduler.Action{}):
		return fmt.Sprintf("%v %v", s.Doing, describe(s.Action))
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
		return fmt.Sprintf("a credit of chunk %d, which has not taken earlier inputs (%d held, %d needed)", s.Needs.Chunk, s.Held, s.Need)
	case WaitTied:
		return "gradient of the tied weight"
	case WaitOrder:
		return "its next order"
	case WaitStages:
		return fmt.Sprintf("reports of stages (%d of %d came)", s.Held, s.Need)
	case WaitDecision:
		if s.Doing == Waiting { // in the midst of an order that came ahead
			return "the decision about the step before"
		}
		return "the decision about the step"
	case WaitDisk:
		return "a write to disk"
	case WaitGroup:
		return s.Collective
	case WaitRoom:
		return "room for another output: it holds as many as it may"
	}
	return ""
}

// Explain follows the waits from the scheduler to the actor that holds up the
// run, and says it in a sentence.
func (s Status) Explain() string {
	byName := make(map[string]Snapshot, len(s.Actors))
	for _, a := range s.Actors {
		byName[a.Actor] = a
	}
	at, ok := byName[Scheduler]
	if !ok {
		return ""
	}
	seen := map[string]bool{}
	var path []Snapshot
	var waits []string
	for {
		path = append(path, at)
		if seen[at.Actor] {
			return strings.Join(append(waits, "root: "+s.circle(path)), "\n")
		}
		seen[at.Actor] = true
		next, ok := byName[at.From]
		if at.Wait == WaitNothing || !ok {
			break
		}
		if at.Host != "" {
			waits = append(waits, fmt.Sprintf("%s waits for %s from %s, %.1f s", at.name(), at.waitsFor(), next.name(), s.Time.Sub(at.Since).Seconds()))
		}
		if cut, ok := s.cutBetween(next, at); ok {
			return strings.Join(append(waits, "root: "+cut.String()), "\n")
		}
		at = next
	}
	root := fmt.Sprintf("root: %s, %s for %.1f s", at.name(), at.doing(), s.Time.Sub(at.Since).Seconds())
	if quiet := s.Time.Sub(at.Heard); at.Host != "" && quiet >= tellQuiet {
		root += fmt.Sprintf("; %s has not been heard for %.1f s", at.Host, quiet.Seconds())
	}
	return strings.Join(append(waits, root), "\n")
}

// tellQuiet is the silence of a worker from which on it may be why a run waits.
const tellQuiet = time.Second

// name is what people call the actor, with its worker.
func (s Snapshot) name() string {
	if s.Host == "" {
		return s.Actor
	}
	return s.Actor + " on " + s.Host
}

// Describe says in a few words what the actor is doing, and what it waits for.
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

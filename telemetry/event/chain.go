package event

import "fmt"

// Explain names the actor that blocks the run in one line: the last line of Chain. "": no actor is known.
func (s Status) Explain() string {
	lines := s.Chain()
	if len(lines) == 0 {
		return ""
	}
	return "root: " + lines[len(lines)-1]
}

// Chain follows the waits from the scheduler to the actor that blocks the run, one line for each wait: the actor,
// what it waits for, from which actor, for how long, and when its host last reported.
func (s Status) Chain() []string {
	byName := make(map[string]Snapshot, len(s.Actors))
	for _, a := range s.Actors {
		byName[a.Actor] = a
	}
	at, ok := byName[Scheduler]
	var lines []string
	var path []Snapshot
	for seen := map[string]bool{}; ok; at, ok = byName[at.From] {
		line := at.name()
		if at.Wait == WaitNothing || at.From == "" {
			return append(lines, fmt.Sprintf("%s is %s, %.1f s%s", line, at.doing(), s.Time.Sub(at.Since).Seconds(), s.heard(at)))
		}
		line += " waits for " + at.waitsFor()
		next, known := byName[at.From]
		if known {
			line += " from " + next.name()
		} else {
			line += " from " + at.From
		}
		lines = append(lines, fmt.Sprintf("%s, %.1f s%s", line, s.Time.Sub(at.Since).Seconds(), s.heard(at)))
		if cut, ok := s.cutBetween(next, at); known && ok {
			return append(lines, cut.String())
		}
		if path = append(path, at); seen[at.Actor] {
			if s.underway(path) {
				return lines[:len(lines)-1] // the last one repeats
			}
			return append(lines, s.circle(path))
		}
		seen[at.Actor] = true
	}
	return lines
}

// heard says when the process of an actor on another host last reported.
func (s Status) heard(a Snapshot) string {
	if a.Heard.IsZero() {
		return ""
	}
	return fmt.Sprintf("; %s last reported %.1f s ago", a.Host, s.Time.Sub(a.Heard).Seconds())
}

// hosts reports whether any actor is in another process.
func (s Status) hosts() bool {
	for _, a := range s.Actors {
		if a.Host != "" {
			return true
		}
	}
	return false
}

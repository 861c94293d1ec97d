package event

import "fmt"

// Explain says in one line which actor holds up the run: the last line of Chain; "": no actor is known.
func (s Status) Explain() string {
	lines := s.Chain()
	if len(lines) == 0 {
		return ""
	}
	return "root: " + lines[len(lines)-1]
}

// Chain follows the waits from the scheduler to the actor that holds up the run, a line for
// each: who waits for what from whom, on which hosts, since when, and when a host was heard
// of last.
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
			return append(lines, s.circle(path))
		}
		seen[at.Actor] = true
	}
	return lines
}

// heard says of an actor elsewhere when its process was heard of last.
func (s Status) heard(a Snapshot) string {
	if a.Heard.IsZero() {
		return ""
	}
	return fmt.Sprintf("; %s was heard %.1f s ago", a.Host, s.Time.Sub(a.Heard).Seconds())
}

// hosts reports whether an actor is in another process.
func (s Status) hosts() bool {
	for _, a := range s.Actors {
		if a.Host != "" {
			return true
		}
	}
	return false
}

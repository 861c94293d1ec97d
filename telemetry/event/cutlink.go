package event

import (
	"fmt"
	"strings"
	"time"
)

// CutLink is a broken link between two processes: one does not acknowledge what the other sends.
type CutLink struct {
	From, To string // hosts, as in Snapshot.Host; "": the coordinator
	For      time.Duration
}

// String says which process does not reach which other process, and for how long.
func (l CutLink) String() string {
	return fmt.Sprintf("%s does not reach %s: no acknowledgment for %.1f s", hostName(l.From), hostName(l.To),
		l.For.Seconds())
}

func hostName(host string) string {
	if host == "" {
		return "the coordinator"
	}
	return host
}

// cutBetween returns the cut link between the hosts of two actors, if it is known.
func (s Status) cutBetween(from, to Snapshot) (CutLink, bool) {
	for _, l := range s.Cut {
		if l.From == from.Host && l.To == to.Host {
			return l, true
		}
	}
	return CutLink{}, false
}

// circle explains waits that lead back to an actor. The schedule has no cycles, so a message between two processes is
// missing.
func (s Status) circle(path []Snapshot) string {
	var names []string
	for _, a := range path {
		names = append(names, a.name())
	}
	waits, silent := strings.Join(names, " ← "), s.silent(path)
	switch {
	case len(s.Cut) > 0:
		var cut []string
		for _, l := range s.Cut {
			cut = append(cut, l.String())
		}
		return strings.Join(cut, "; ")
	case silent != "":
		return silent + ": " + waits
	case crosses(path):
		return "a message between hosts has not arrived: " + waits
	}
	return "a cycle of waits: " + waits
}

// missingFor is how long all actors of a cycle wait before a message between their processes counts as missing. It is
// longer than silentFor: for a second at least, all of them really waited at the same time.
const missingFor = silentFor + time.Second

// underway reports whether a cycle of waits between processes is too young to mean anything: the reports of the processes
// differ in age, so one of the actors may have its message already.
func (s Status) underway(path []Snapshot) bool {
	if !crosses(path) || len(s.Cut) > 0 || s.silent(path) != "" {
		return false
	}
	last := path[len(path)-1]
	for i := len(path) - 2; i >= 0; i-- {
		if s.Time.Sub(path[i].Since) < missingFor {
			return true
		}
		if path[i].Actor == last.Actor {
			break
		}
	}
	return false
}

// silentFor is how long a process may be silent before its last report is stale. Processes report once a second.
const silentFor = 2 * time.Second

// silent names the process in a path that has been silent for longest; "": all have reported lately. The reports of a
// silent process are older than those of the others, so that their waits may seem to form a cycle.
func (s Status) silent(path []Snapshot) string {
	var oldest Snapshot
	for _, a := range path {
		if !a.Heard.IsZero() && s.Time.Sub(a.Heard) >= silentFor && (oldest.Heard.IsZero() || a.Heard.Before(oldest.Heard)) {
			oldest = a
		}
	}
	if oldest.Heard.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s has not reported for %.1f s", oldest.Host, s.Time.Sub(oldest.Heard).Seconds())
}

// crosses reports whether the cycle at the end of a path has actors of several processes.
func crosses(path []Snapshot) bool {
	last := path[len(path)-1]
	for i := len(path) - 2; i >= 0 && path[i].Actor != last.Actor; i-- {
		if path[i].Host != last.Host {
			return true
		}
	}
	return false
}

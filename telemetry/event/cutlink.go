package event

import (
	"fmt"
	"strings"
	"time"
)

// CutLink is a link between two processes on which nothing arrives: what one has sent the other has not acknowledged.
type CutLink struct {
	From, To string // hosts, as a Snapshot has them; "": the coordinator
	For      time.Duration
}

// String says which process does not reach which, and for how long.
func (l CutLink) String() string {
	return fmt.Sprintf("%s does not reach %s: nothing that it sent was acknowledged for %.1f s", hostName(l.From), hostName(l.To),
		l.For.Seconds())
}

func hostName(host string) string {
	if host == "" {
		return "the coordinator"
	}
	return host
}

// cutBetween is the link that keeps what an actor waits for from it, where that is known: a message from an actor of
// another process.
func (s Status) cutBetween(from, to Snapshot) (CutLink, bool) {
	for _, l := range s.Cut {
		if l.From == from.Host && l.To == to.Host {
			return l, true
		}
	}
	return CutLink{}, false
}

// circle says what it means that waits lead back to an actor. The schedule has no cycles, so in several processes a
// message is missing that one of them has sent.
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

// silentFor is how long a process may be silent before what it was last heard to do is old: it tells once a second.
const silentFor = 2 * time.Second

// silent names the process in a path that has been silent for longest; "": none has been for long. What is known of its
// actors is of an earlier moment than what is known of others, and the waits of both may seem to go round.
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
	return fmt.Sprintf("%s has not been heard for %.1f s", oldest.Host, s.Time.Sub(oldest.Heard).Seconds())
}

// crosses reports whether the circle that a path ends in has actors of several processes.
func crosses(path []Snapshot) bool {
	last := path[len(path)-1]
	for i := len(path) - 2; i >= 0 && path[i].Actor != last.Actor; i-- {
		if path[i].Host != last.Host {
			return true
		}
	}
	return false
}

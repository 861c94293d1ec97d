package scheduler

// together gives the times of actions that run as one from now on, and returns how long the rank
// computes and when all have ended. A pair takes as long as both actions. In a pair that is cut into
// parts, the parts run one after the other, and an exchange of tokens takes the link and not the
// rank: it begins where it stands, after the exchange before it, and the next part of its action waits for
// it.
func (m *Machine) together(rank int, group []Action, now float64, start, end []float64) (busy, done float64, err error) {
	if group[0].Part == 0 {
		for _, a := range group {
			c, err := m.cost(rank, a)
			if err != nil {
				return 0, 0, err
			}
			busy += c
		}
		for k := range group {
			start[k], end[k] = now, now+busy
		}
		return busy, now + busy, nil
	}
	rankFree, linkFree := now, now
	parts := partsOf(group)
	var came [2]float64 // by side: when its last exchange has ended
	for k, a := range group {
		side := a.side()
		if a.Type.IsExchange() {
			c, err := m.cost(rank, a)
			if err != nil {
				return 0, 0, err
			}
			start[k] = max(linkFree, rankFree)
			linkFree = start[k] + c
			end[k], came[side] = linkFree, linkFree
			continue
		}
		c, err := m.partCost(rank, a, parts[side])
		if err != nil {
			return 0, 0, err
		}
		start[k] = max(rankFree, came[side])
		rankFree = start[k] + c
		end[k] = rankFree
		busy += c
	}
	return busy, max(rankFree, linkFree), nil
}

// partTimes holds the times of actions that run as one in parts, since their start: the starts of all,
// then the ends of all. They hold for ranks that do not share their cores.
type partTimes struct {
	times      []float64
	busy, done float64
}

// endParts gives the parts of a rank their times: what runs at the same time slows all of them down
// equally.
func (l *loop) endParts(now float64, rank int) {
	p, start := l.parts[rank], l.timeline.Start[rank]
	n := len(l.running[rank])
	start = start[len(start)-n:]
	begun, slower := start[0], 1.0
	if p.done > 0 {
		slower = (now - begun) / p.done
	}
	for k := range n {
		start[k] = begun + slower*p.times[k]
		l.timeline.End[rank] = append(l.timeline.End[rank], begun+slower*p.times[n+k])
	}
	l.timeline.Busy[rank] -= slower * (p.done - p.busy)
}

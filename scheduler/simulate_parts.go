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
	var came [2]float64 // of the forward and the backward: when its last exchange has ended
	for k, a := range group {
		c, err := m.cost(rank, a)
		if err != nil {
			return 0, 0, err
		}
		side := 0
		if !a.Type.IsForward() {
			side = 1
		}
		if a.Type.IsExchange() {
			start[k] = max(linkFree, rankFree)
			linkFree = start[k] + c
			end[k], came[side] = linkFree, linkFree
			continue
		}
		start[k] = max(rankFree, came[side])
		rankFree = start[k] + c
		end[k] = rankFree
		busy += c
	}
	return busy, max(rankFree, linkFree), nil
}

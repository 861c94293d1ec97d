package scheduler

// CSV writes the table in PyTorch's dialect: a row for each rank, its actions
// separated by commas, a pair as one cell. It draws no bubbles. ReadCSV reads it back,
// but for the name of the schedule.
func (t *Table) CSV() string {
	var text []byte
	for _, row := range t.Ranks {
		text = append(appendRow(text, row, ','), '\n')
	}
	return string(text)
}

// CSVWithCommunication writes CSV with sends and receives, for runtimes that need
// matched pairs of them: between ranks, a receive right before the action that needs
// it, and a send right after the one whose output it sends. Skip edges have none, since the
// dialect's don't say which chunk is at the other end: a table that has some can't be
// written so that another runtime runs it.
func (t *Table) CSVWithCommunication() string {
	var text []byte
	for rank, row := range t.Ranks {
		for i := 0; i < len(row); {
			together := row[i:min(i+Width(row, i), len(row))]
			for _, a := range together {
				if kind, ok := a.Type.edge(); ok {
					peer, exists := kind.from(int(a.Chunk), t.NumChunks)
					text = t.appendTransfer(text, rank, a, receiveOn(kind), peer, exists)
				}
			}
			text = append(appendRow(text, together, ','), ',')
			for _, a := range together {
				if kind, ok := a.Type.edge(); ok {
					peer, exists := kind.to(int(a.Chunk), t.NumChunks)
					text = t.appendTransfer(text, rank, a, sendOn(kind), peer, exists)
				}
			}
			i += len(together)
		}
		if len(row) > 0 {
			text = text[:len(text)-1] // the last comma
		}
		text = append(text, '\n')
	}
	return string(text)
}

// appendTransfer writes the cell of an action's transfer, where there is a chunk at the
// other end and it is on another rank.
func (t *Table) appendTransfer(text []byte, rank int, a Action, o Type, peer int, exists bool) []byte {
	if !exists || t.RankOf(peer) == rank {
		return text
	}
	return append(Action{Chunk: a.Chunk, Type: o, Microbatch: a.Microbatch}.appendTo(text), ',')
}

package scheduler

// CSV writes the table in PyTorch's dialect: one row for each rank, its actions separated by
// commas, an overlapped pair as one cell. It writes no bubbles. ReadCSV reads the result back,
// except for the name of the schedule.
func (t *Table) CSV() string {
	var text []byte
	for _, row := range t.Ranks {
		text = append(appendRow(text, row, ','), '\n')
	}
	return string(text)
}

// CSVWithCommunication writes CSV with sends and receives, for runtimes that need matched pairs. A
// receive stands right before the action that needs it, and a send right after the action whose
// output it sends. Each send has a wait where PyTorch puts it. An activation's wait follows the
// backward of the same chunk and microbatch, which proves that the receiver has the activation;
// every other wait stands at the end of the row. Skip edges get no sends and receives, since the
// dialect can't name the chunk at the other end. So another runtime can't run a table with skips
// from this text.
func (t *Table) CSVWithCommunication() string {
	var text []byte
	for rank, row := range t.Ranks {
		w := transferWriter{t, rank, text}
		for i := 0; i < len(row); {
			together := row[i:min(i+Width(row, i), len(row))]
			for _, a := range together {
				w.receive(a)
			}
			w.text = append(appendRow(w.text, together, ','), ',')
			for _, a := range together {
				if a.Type == I || a.Type == B {
					w.wait(a, ForwardEdge)
				}
			}
			for _, a := range together {
				w.send(a)
			}
			i += len(together)
		}
		for _, a := range row {
			if kind, ok := a.edge(); ok && (kind == BackwardEdge || t.ForwardOnly) {
				w.wait(a, kind)
			}
		}
		text = w.text
		if len(row) > 0 {
			text = text[:len(text)-1] // the last comma
		}
		text = append(text, '\n')
	}
	return string(text)
}

// transferWriter writes the transfers of one rank's row.
type transferWriter struct {
	table *Table
	rank  int
	text  []byte
}

func (w *transferWriter) receive(a Action) {
	if kind, ok := a.edge(); ok {
		peer, exists := kind.from(int(a.Chunk), w.table.NumChunks)
		w.cell(a, receiveOn(kind), peer, exists)
	}
}

func (w *transferWriter) send(a Action) {
	if kind, ok := a.edge(); ok {
		peer, exists := kind.to(int(a.Chunk), w.table.NumChunks)
		w.cell(a, sendOn(kind), peer, exists)
	}
}

// wait writes the wait for the output that an action's chunk sent of its microbatch over a kind of
// edge.
func (w *transferWriter) wait(a Action, kind EdgeKind) {
	peer, exists := kind.to(int(a.Chunk), w.table.NumChunks)
	w.cell(a, waitSendOn(kind), peer, exists)
}

// cell writes a transfer if there is a chunk at the other end and it is on another rank.
func (w *transferWriter) cell(a Action, o Type, peer int, exists bool) {
	if exists && w.table.RankOf(peer) != w.rank {
		w.text = append(Action{Chunk: a.Chunk, Type: o, Microbatch: a.Microbatch}.appendTo(w.text), ',')
	}
}

package corpus

import (
	"errors"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// Teacher has the tokens of a teacher for each position of the records to train on, one record after the other.
type Teacher struct {
	Tokens *rundir.TeacherReader
	first  []int64 // position of each record
	topK   int
}

// errNoRecords: documents that are only texts are joined, and their windows begin elsewhere in each epoch.
var errNoRecords = errors.New("all documents are texts, which are joined and cut into windows; a teacher needs documents one by one: " +
	"give each a prompt and a completion")

// taughtSource feeds the loader with records and what the teacher says about them.
type taughtSource struct {
	*recordSource
	teacher *Teacher
}

func (c *Data) taughtSource(cfg *config.Config, records *recordSource) *taughtSource {
	t := &Teacher{topK: cfg.Distill.TopK}
	at := int64(0)
	for i := range c.TrainRecords.Len() {
		t.first = append(t.first, at)
		at += int64(c.TrainRecords.Positions(i))
	}
	c.Teacher = t
	return &taughtSource{records, t}
}

func (s *taughtSource) TeacherTokens() int { return s.teacher.topK }

func (s *taughtSource) Teach(step int64, index int, ids []int32, logp []float32) error {
	return s.teacher.Tokens.Read(s.teacher.first[s.record(step, index)], ids, logp)
}

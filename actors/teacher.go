package actors

import (
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// TaughtSource is a Source with what a teacher says about each position to train on: see stages.Distill.
type TaughtSource interface {
	Source
	// TeacherTokens is the number of the teacher's tokens at a position.
	TeacherTokens() int
	// Teach fills in their ids and log-probabilities for a sequence of a step, and after each position's the log-probability of all
	// other tokens.
	Teach(step int64, index int, ids []int32, logp []float32) error
}

// wantsTeacher reports whether a request is for what a teacher says.
func (m *DataRequest) wantsTeacher() bool {
	return len(m.Fields) > 0 && m.Fields[0] == stages.TeacherIDs
}

// fillTeacher fills in stages.TeacherIDs and TeacherLogP of a microbatch to train on. Padding keeps zeros.
func (b *Batch) fillTeacher(source TaughtSource, m *DataRequest, first int, length func(int) int) error {
	k := source.TeacherTokens()
	ids := tensorops.NewArray(tensorops.Int32, []int{b.Sequences, b.Positions, k})
	logp := tensorops.NewArray(tensorops.Float32, []int{b.Sequences, b.Positions, k + 1})
	for i := range b.Sequences {
		n, at := length(first+i), i*b.Positions
		if err := source.Teach(m.Step, first+i, ids.Int[at*k:][:n*k], logp.Float[at*(k+1):][:n*(k+1)]); err != nil {
			return err
		}
	}
	b.Fields = []tensorops.Array{ids, logp}
	return nil
}

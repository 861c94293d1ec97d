package corpus

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
)

// Reference has the log-probabilities of all answers under the reference model, in the order of the records.
type Reference struct{ Train, Val []float64 }

// AnswersDigest returns a hash of all answers, by which their log-probabilities are known.
func (c *Data) AnswersDigest() (string, error) { return digestOf(c.TrainRecords, c.ValRecords) }

// RecordsDigest returns a hash of the records to train on, by which a teacher's tokens are known.
func (c *Data) RecordsDigest() (string, error) { return digestOf(c.TrainRecords) }

func digestOf(all ...*data.Records) (string, error) {
	h := sha256.New()
	for _, r := range all {
		if err := binary.Write(h, binary.LittleEndian, int64(r.Len())); err != nil {
			return "", err
		}
		for i := range r.Len() {
			ids := make([]int32, 2*r.Positions(i))
			n := len(ids) / 2
			if err := r.Fill(i, ids[:n], ids[n:]); err != nil {
				return "", err
			}
			if err := binary.Write(h, binary.LittleEndian, ids); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// TrainFeed returns a feed that reads each record to train on once, in order.
func (c *Data) TrainFeed(context int) Feed {
	all := make([]int, c.TrainRecords.Len())
	for i := range all {
		all[i] = i
	}
	return Feed{Source: &recordSource{val: c.TrainRecords, windows: all}, Context: context, Windows: len(all)}
}

// Answers reads each answer once, those to train on and those to validate on. The longest ones come first: those of a microbatch then need
// little padding, and no later one needs more memory.
type Answers struct {
	recordSource
	order []int
}

// Answers returns all answers.
func (c *Data) Answers() *Answers {
	a := &Answers{recordSource: recordSource{train: c.TrainRecords, val: c.ValRecords}}
	a.order = make([]int, c.TrainRecords.Len()+c.ValRecords.Len())
	for i := range a.order {
		a.order[i] = i
	}
	slices.SortStableFunc(a.order, func(i, j int) int {
		of, k := a.at(i)
		other, l := a.at(j)
		return other.Positions(l) - of.Positions(k)
	})
	return a
}

// at returns the records that answer i is one of, and its place. Those to train on come first.
func (a *Answers) at(i int) (*data.Records, int) {
	if n := a.train.Len(); i >= n {
		return a.val, i - n
	}
	return a.train, i
}

// Index returns which answer a window is.
func (a *Answers) Index(window int) int { return a.order[window] }

// EvalWindows returns the number of answers.
func (a *Answers) EvalWindows() int { return len(a.order) }

// EvalLen returns the length of an answer with its prompt.
func (a *Answers) EvalLen(window int) int {
	of, i := a.at(a.order[window])
	return of.Positions(i)
}

// EvalFill fills in an answer with its prompt.
func (a *Answers) EvalFill(window int, tokens, targets []int32) error {
	of, i := a.at(a.order[window])
	return of.Fill(i, tokens, targets)
}

// answerSource feeds the loader with pairs of answers. Sequences 2k and 2k+1 of the run are a pair.
type answerSource struct {
	train, val *data.Records
	reference  *Reference // empty if the loss needs none
	seed       uint64
	sequences  int64 // in a step
	windows    []int // records of val
}

func answerFeed(c *Data, cfg *config.Config, evalWindows int) Feed {
	s := &answerSource{train: c.TrainRecords, val: c.ValRecords, reference: &Reference{}, seed: cfg.Run.Seed,
		sequences: int64(cfg.Batch.Sequences)}
	if cfg.PreferenceLoss().NeedsReference() {
		c.Reference = s.reference
	}
	for _, pair := range spreadOver(int64(s.val.Len()/2), evalWindows/2) {
		s.windows = append(s.windows, 2*pair, 2*pair+1)
	}
	return Feed{Source: s, Context: cfg.Model.Context, Windows: len(s.windows), Epoch: int64(s.train.Len())}
}

// record returns the record of a sequence of a step.
func (s *answerSource) record(step int64, index int) int {
	n := (step-1)*s.sequences + int64(index)
	return 2*data.Order(s.seed, n/2, s.train.Len()/2) + int(n%2)
}

func (s *answerSource) TrainLen(step int64, index int) int {
	return s.train.Positions(s.record(step, index))
}

func (s *answerSource) Train(step int64, index int, tokens, targets []int32) error {
	return s.train.Fill(s.record(step, index), tokens, targets)
}

func (s *answerSource) EvalWindows() int      { return len(s.windows) }
func (s *answerSource) EvalLen(index int) int { return s.val.Positions(s.windows[index]) }

func (s *answerSource) EvalFill(index int, tokens, targets []int32) error {
	return s.val.Fill(s.windows[index], tokens, targets)
}

// TrainReference returns what the reference model says about a sequence of a step.
func (s *answerSource) TrainReference(step int64, index int) (actors.Reference, error) {
	return referenceOf(s.reference.Train, s.train, s.record(step, index))
}

// EvalReference returns what the reference model says about a validation window.
func (s *answerSource) EvalReference(index int) (actors.Reference, error) {
	return referenceOf(s.reference.Val, s.val, s.windows[index])
}

func referenceOf(logp []float64, records *data.Records, i int) (r actors.Reference, err error) {
	if i >= len(logp) {
		return r, fmt.Errorf("answer %d of %d has no log-probability under the reference model", i+1, records.Len())
	}
	return actors.Reference{LogP: logp[i], Good: records.Good(i)}, nil
}

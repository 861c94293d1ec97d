package stages

import "fmt"

// Losses of Distill.
const (
	ForwardKL = "forward_kl"
	ReverseKL = "reverse_kl"
)

// Distill adds the divergence from a teacher to the loss of a language model. The teacher is known by its TopK most likely tokens at
// each position, and by the probability of all others together. The loss of a target is
//
//	(1−Weight)·cross-entropy + Weight·Temperature²·divergence
//
// Validations compute the cross-entropy alone. The divergence is KL(teacher‖model) for ForwardKL, the one of Hinton et al.,
// arXiv:1503.02531, or KL(model‖teacher) for ReverseKL, as in MiniLLM (Gu et al., arXiv:2306.08543) but on the data's own texts. Both
// are between distributions over TopK+1 outcomes at the temperature: see tensorops.List.Distill.
//
// In a forward-only run with Options.Inference the model is the teacher: it collects the fields that training reads.
type Distill struct {
	Loss        string
	TopK        int
	Temperature float64
	Weight      float64
}

// The fields of the data that a Distill reads, and that a teacher collects: [B, T, TopK] int32 and [B, T, TopK+1] float32. The
// log-probability of all other tokens comes last.
const (
	TeacherIDs  = "teacher_ids"
	TeacherLogP = "teacher_logp"
)

// checkDistill checks that a model can be distilled into, or be a teacher. The error is ErrModel.
func (m *Model) checkDistill(o Options) error {
	switch c, k := m.Config, o.Distill.TopK; {
	case !m.language():
		return fmt.Errorf("%w: only language models can be distilled, not family %q", ErrModel, c.Family)
	case c.MTPLayers > 0 && !o.Inference:
		return fmt.Errorf("%w: a model with multi-token prediction (%d layers) cannot learn from a teacher", ErrModel, c.MTPLayers)
	case o.Tensor.size() > 1 || o.Context.size() > 1:
		return fmt.Errorf("%w: tensor and context groups cannot compute the divergence from a teacher", ErrModel)
	case k < 1 || k > c.Vocab:
		return fmt.Errorf("%w: the %d most likely tokens of a vocabulary of %d; use 1 to %[3]d", ErrModel, k, c.Vocab)
	}
	return nil
}

// taught reports whether a pass learns from a teacher.
func (c *pass) taught() bool { return c.stage.opts.Distill != nil && c.mb.Train }

// teaches reports whether a pass is that of a teacher.
func (c *pass) teaches() bool {
	return c.stage.opts.Distill != nil && c.stage.opts.Inference && c.mb.Collect
}

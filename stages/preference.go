package stages

import (
	"fmt"
	"math"
)

// The losses of a Preference.
const (
	DPO   = "dpo"
	IPO   = "ipo"
	ORPO  = "orpo"
	SimPO = "simpo"
	KTO   = "kto"
)

// Preference is a loss of whole answers in place of the mean over tokens: a model learns which of two answers to a prompt is better,
// or whether an answer is good. Consecutive sequences of a microbatch belong together: a chosen answer and then the rejected one or,
// for KTO, an answer and then the answer to another prompt, from which the KL divergence is estimated. The targets are the tokens of
// the answer. The definitions are those of the papers and of the code of TRL:
//
//	dpo    Rafailov et al., arXiv:2305.18290, eq. 7. LabelSmoothing is the probability that a label is wrong (conservative DPO)
//	ipo    Azar et al., arXiv:2310.12036, eq. 17, with the mean over an answer's tokens, as in TRL
//	orpo   Hong et al., arXiv:2403.07691, eq. 6: the mean loss of the chosen answer's tokens, and Beta times the odds ratio
//	simpo  Meng et al., arXiv:2405.14734, eq. 6. Gamma is the target margin of the rewards
//	kto    Ethayarajh et al., arXiv:2402.01306, eq. 7, with the KL divergence estimated in each microbatch
type Preference struct {
	Loss              string // "": none; a forward-only run collects LogProbabilities
	Beta              float64
	LabelSmoothing    float64 // dpo, simpo
	Gamma             float64 // simpo
	DesirableWeight   float64 // kto: weight of the loss of good answers
	UndesirableWeight float64 // kto: and of the others
}

// ReferenceField is the field of the data that a Preference reads for each sequence, [B, 2] float64: the log-probability of the answer
// under the reference model and, for KTO, 1 for a good answer or 0 for another one.
const ReferenceField = "reference"

// LogProbabilities is the output of a language model's forward-only run with a Preference, [B, 2] float64: the log-probability of the
// answer of each sequence, and its number of tokens.
const LogProbabilities = "log_probabilities"

// NeedsReference reports whether the loss compares the model with a reference model.
func (p *Preference) NeedsReference() bool {
	return p != nil && (p.Loss == DPO || p.Loss == IPO || p.Loss == KTO)
}

// answer is the log-probability of the tokens of an answer.
type answer struct {
	logp, tokens float64
	reference    float64 // logp under the reference model
	good         bool    // kto
}

func (a answer) mean() float64  { return a.logp / a.tokens }
func (a answer) ratio() float64 { return a.logp - a.reference }

// judged is the loss of a pair of answers. grads are the derivatives of the loss by each one's logp.
type judged struct {
	loss    float64
	grads   [2]float64
	rewards [2]float64
}

// judge returns the report of a microbatch, and for each answer the derivative of the report's Sum by its logp. A pair of which an
// answer has no tokens, such as padding, counts nothing.
func (p *Preference) judge(answers []answer) (r Report, grads []float64) {
	grads = make([]float64, len(answers))
	chosen, rejected := Metric{Name: "rewards_chosen"}, Metric{Name: "rewards_rejected"}
	margin, accuracy := Metric{Name: "rewards_margin"}, Metric{Name: "accuracy"}
	kl := p.divergence(answers)
	for i := 0; i+1 < len(answers); i += 2 {
		a, b := answers[i], answers[i+1]
		if a.tokens == 0 || b.tokens == 0 {
			continue
		}
		r.Targets++
		if p.Loss == KTO {
			loss, grad := p.kto(a, kl)
			r.Sum, grads[i] = r.Sum+loss, grad
			to := &rejected
			if a.good {
				to = &chosen
			}
			to.Sum, to.Count = to.Sum+p.Beta*a.ratio(), to.Count+1
			continue
		}
		j := p.pair(a, b)
		r.Sum, grads[i], grads[i+1] = r.Sum+j.loss, j.grads[0], j.grads[1]
		chosen.Sum, rejected.Sum = chosen.Sum+j.rewards[0], rejected.Sum+j.rewards[1]
		margin.Sum += j.rewards[0] - j.rewards[1]
		if j.rewards[0] > j.rewards[1] {
			accuracy.Sum++
		}
	}
	if p.Loss == KTO {
		r.Metrics = []Metric{chosen, rejected, {Name: "kl", Sum: kl * r.Targets, Count: r.Targets}}
		return r, grads
	}
	r.Metrics = []Metric{chosen, rejected, margin, accuracy}
	for i := range r.Metrics {
		r.Metrics[i].Count = r.Targets
	}
	return r, grads
}

// pair returns the loss of a chosen and a rejected answer.
func (p *Preference) pair(w, l answer) (j judged) {
	switch p.Loss {
	case DPO:
		j.rewards = [2]float64{p.Beta * w.ratio(), p.Beta * l.ratio()}
		loss, slope := p.logistic(p.Beta * (w.ratio() - l.ratio()))
		j.loss, j.grads = loss, [2]float64{p.Beta * slope, -p.Beta * slope}
	case IPO:
		j.rewards = [2]float64{p.Beta * w.ratio(), p.Beta * l.ratio()}
		d := w.ratio()/w.tokens - l.ratio()/l.tokens - 1/(2*p.Beta)
		j.loss, j.grads = d*d, [2]float64{2 * d / w.tokens, -2 * d / l.tokens}
	case SimPO:
		j.rewards = [2]float64{p.Beta * w.mean(), p.Beta * l.mean()}
		loss, slope := p.logistic(p.Beta*(w.mean()-l.mean()) - p.Gamma)
		j.loss, j.grads = loss, [2]float64{p.Beta * slope / w.tokens, -p.Beta * slope / l.tokens}
	case ORPO:
		j.rewards = [2]float64{p.Beta * w.mean(), p.Beta * l.mean()}
		odds := logOdds(w.mean()) - logOdds(l.mean())
		slope := -p.Beta * sigmoid(-odds)
		j.loss = -w.mean() - p.Beta*logSigmoid(odds)
		j.grads = [2]float64{(-1 + slope*oddsSlope(w.mean())) / w.tokens, -slope * oddsSlope(l.mean()) / l.tokens}
	}
	return j
}

// logistic returns the loss of a margin, −log σ(h) with smoothed labels, and its derivative.
func (p *Preference) logistic(h float64) (loss, slope float64) {
	e := p.LabelSmoothing
	return -(1-e)*logSigmoid(h) - e*logSigmoid(-h), -(1-e)*sigmoid(-h) + e*sigmoid(h)
}

// divergence estimates the KL divergence from the answers to other prompts; 0 if the loss is not KTO.
func (p *Preference) divergence(answers []answer) float64 {
	sum, n := 0.0, 0.0
	for i := 1; i < len(answers) && p.Loss == KTO; i += 2 {
		if answers[i].tokens > 0 && answers[i-1].tokens > 0 {
			sum, n = sum+answers[i].ratio(), n+1
		}
	}
	return math.Max(0, sum/math.Max(n, 1))
}

// kto returns the loss of an answer, and its derivative by the answer's logp. The divergence is a constant in it.
func (p *Preference) kto(a answer, kl float64) (loss, grad float64) {
	weight, sign := p.UndesirableWeight, -1.0
	if a.good {
		weight, sign = p.DesirableWeight, 1
	}
	s := sigmoid(sign * p.Beta * (a.ratio() - kl))
	return weight * (1 - s), -weight * sign * p.Beta * s * (1 - s)
}

func sigmoid(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

func logSigmoid(x float64) float64 { return math.Min(x, 0) - math.Log1p(math.Exp(-math.Abs(x))) }

// certain is the mean log-probability above which odds are not finite in practice: those of larger ones are limited to it.
const certain = -1e-9

// logOdds returns log(P / (1−P)) of a mean log-probability.
func logOdds(mean float64) float64 {
	mean = math.Min(mean, certain)
	return mean - math.Log(-math.Expm1(mean))
}

// oddsSlope is the derivative of logOdds.
func oddsSlope(mean float64) float64 { return -1 / math.Expm1(math.Min(mean, certain)) }

// CheckPreference checks that a model can learn from preferences. The error is ErrModel.
func (m *Model) CheckPreference() error {
	switch c := m.Config; {
	case !m.language():
		return fmt.Errorf("%w: only language models can learn from preferences, not family %q", ErrModel, c.Family)
	case c.MTPLayers > 0:
		return fmt.Errorf("%w: a model with multi-token prediction (%d layers) cannot learn from preferences", ErrModel, c.MTPLayers)
	case c.Experts.Balance.ZLossWeight > 0:
		return fmt.Errorf("%w: the z-loss of routers (weight %g) goes with a loss of tokens, not with one of preferences; "+
			"set its weight to 0", ErrModel, c.Experts.Balance.ZLossWeight)
	case c.Experts.AuxLossWeight > 0:
		return fmt.Errorf("%w: the balance loss of experts (weight %g) goes with a loss of tokens, not with one of preferences; "+
			"set its weight to 0", ErrModel, c.Experts.AuxLossWeight)
	}
	return nil
}

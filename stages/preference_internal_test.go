package stages

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// preferences are one of each loss, with everything on.
func preferences() map[string]Preference {
	return map[string]Preference{
		"dpo":              {Loss: DPO, Beta: 0.3},
		"conservative dpo": {Loss: DPO, Beta: 0.3, LabelSmoothing: 0.2},
		"ipo":              {Loss: IPO, Beta: 0.4},
		"orpo":             {Loss: ORPO, Beta: 0.5},
		"simpo":            {Loss: SimPO, Beta: 2, Gamma: 0.5, LabelSmoothing: 0.1},
		"kto":              {Loss: KTO, Beta: 0.3, DesirableWeight: 1.3, UndesirableWeight: 0.7},
	}
}

// plainLoss is the loss of a pair as the papers write it.
func plainLoss(p Preference, w, l answer, kl float64) float64 {
	s := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	smooth := func(h float64) float64 {
		return -(1-p.LabelSmoothing)*math.Log(s(h)) - p.LabelSmoothing*math.Log(s(-h))
	}
	odds := func(a answer) float64 { q := math.Exp(a.logp / a.tokens); return q / (1 - q) }
	switch p.Loss {
	case DPO:
		return smooth(p.Beta*(w.logp-w.reference) - p.Beta*(l.logp-l.reference))
	case IPO:
		d := (w.logp-w.reference)/w.tokens - (l.logp-l.reference)/l.tokens - 1/(2*p.Beta)
		return d * d
	case ORPO:
		return -w.logp/w.tokens - p.Beta*math.Log(s(math.Log(odds(w)/odds(l))))
	case SimPO:
		return smooth(p.Beta/w.tokens*w.logp - p.Beta/l.tokens*l.logp - p.Gamma)
	}
	if w.good {
		return p.DesirableWeight * (1 - s(p.Beta*(w.logp-w.reference-kl)))
	}
	return p.UndesirableWeight * (1 - s(p.Beta*(kl-w.logp+w.reference)))
}

// TestPreferenceLosses: the losses are those of the papers, and the gradients their slopes. The KL divergence is a constant.
func TestPreferenceLosses(t *testing.T) {
	for name, p := range preferences() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				answers := make([]answer, 2*rapid.IntRange(1, 4).Draw(t, "pairs"))
				for i := range answers {
					n := float64(rapid.IntRange(1, 9).Draw(t, "tokens"))
					mean := rapid.Float64Range(-6, -0.05).Draw(t, "mean")
					answers[i] = answer{mean * n, n, mean*n + rapid.Float64Range(-4, 4).Draw(t, "ratio"), rapid.Bool().Draw(t, "good")}
				}
				r, grads := p.judge(answers)
				kl := 0.0
				for i := 1; i < len(answers) && p.Loss == KTO; i += 2 {
					kl += answers[i].ratio() / float64(len(answers)/2)
				}
				kl = max(kl, 0)
				sum := 0.0
				for i := 0; i < len(answers); i += 2 {
					w, l := answers[i], answers[i+1]
					loss := func(dw, dl float64) float64 {
						a, b := w, l
						a.logp, b.logp = a.logp+dw, b.logp+dl
						return plainLoss(p, a, b, kl)
					}
					sum += loss(0, 0)
					const h = 1e-5
					for k, want := range []float64{(loss(h, 0) - loss(-h, 0)) / (2 * h), (loss(0, h) - loss(0, -h)) / (2 * h)} {
						if got := grads[i+k]; math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
							t.Fatalf("the gradient of answer %d is %g, the slope %g", i+k, got, want)
						}
					}
				}
				if math.Abs(r.Sum-sum) > 1e-9*max(1, math.Abs(sum)) || r.Targets != float64(len(answers)/2) {
					t.Fatalf("the loss is %g of %g, want %g of %d", r.Sum, r.Targets, sum, len(answers)/2)
				}
			})
		})
	}
}

// TestPreferenceExtremes: no loss and no gradient is infinite or NaN, and padding counts nothing.
func TestPreferenceExtremes(t *testing.T) {
	for name, p := range preferences() {
		for _, logp := range [][2]float64{{0, -1e4}, {-1e4, 0}, {0, 0}, {-1e-300, -1e-300}, {-1e6, -1e6}} {
			pair := []answer{{logp[0], 3, -50, true}, {logp[1], 2, -60, false}, {}, {}, {-1, 1, -1, true}}
			r, grads := p.judge(pair)
			for _, v := range append([]float64{r.Sum}, grads...) {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%s: log-probabilities %v give the loss %g and the gradients %v", name, logp, r.Sum, grads)
				}
			}
			if r.Targets != 1 || grads[2] != 0 || grads[4] != 0 {
				t.Errorf("%s: %g pairs, gradients %v", name, r.Targets, grads)
			}
		}
	}
	p := Preference{Loss: DPO, Beta: 0.1}
	r, _ := p.judge([]answer{{-5, 3, -5, false}, {-7, 2, -7, false}, {-4, 3, -5, false}, {-9, 2, -7, false}})
	want := map[string]float64{"rewards_chosen": 0.1, "rewards_rejected": -0.2, "rewards_margin": 0.3, "accuracy": 1}
	for _, m := range r.Metrics {
		if math.Abs(m.Sum-want[m.Name]) > 1e-12 || m.Count != 2 {
			t.Errorf("%s is %g of %g, want %g of 2", m.Name, m.Sum, m.Count, want[m.Name])
		}
	}
	if len(r.Metrics) != len(want) || math.Abs(r.Sum-math.Ln2-math.Log1p(math.Exp(-0.3))) > 1e-12 {
		t.Errorf("the report is %+v", r)
	}
}

func TestPartsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sequences, positions := rapid.IntRange(1, 6).Draw(t, "sequences"), rapid.IntRange(1, 9).Draw(t, "positions")
		each := rapid.IntRange(1, sequences*positions).Draw(t, "each")
		at := 0
		for _, q := range partsOf(sequences*positions, each, positions) {
			if q.lo != at || q.hi <= q.lo || q.lo/each != (q.hi-1)/each || q.answer != q.lo/positions || q.answer != (q.hi-1)/positions {
				t.Fatalf("the part %+v after %d of %d rows, %d at a time", q, at, sequences*positions, each)
			}
			at = q.hi
		}
		if at != sequences*positions {
			t.Fatalf("the parts end at %d of %d rows", at, sequences*positions)
		}
	})
}

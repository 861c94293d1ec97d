package forecast

import (
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/internal/plan"
)

// learning loads a small model that learns from documents, with some keys set. Its data need not exist.
func learning(sets ...string) (*config.Config, error) {
	return tiny(slices.Concat([]string{"data.train=[\"-\"]", "data.format=documents", "data.tokenizer=bytes", "model.vocab=256",
		"batch.microbatch=2"}, sets)...)(nil)
}

// fieldLosses are the losses that read more than tokens.
var fieldLosses = map[string]string{"dpo": "preference.loss=dpo", "ipo": "preference.loss=ipo", "kto": "preference.loss=kto",
	"distill": "distill.from=none"}

// TestFieldLosses: layers whose loss reads what a reference model or a teacher says are measured, and estimated for a GPU, as those of a
// loss that reads tokens alone. That GPUs don't compute the loss is an error about the device, before anything is estimated.
func TestFieldLosses(t *testing.T) {
	h100, _ := gpus.Named("h100")
	for name, loss := range fieldLosses {
		t.Run(name, func(t *testing.T) {
			cfg, err := learning(loss)
			b := planOf(t, cfg, err)
			measured, err := Measure(t.Context(), b, []int{2}, 1e-9, nil)
			if err != nil {
				t.Fatalf("measured: %v", err)
			}
			estimated, err := Estimate(b, []int{2}, h100)
			if err != nil {
				t.Fatalf("estimated: %v", err)
			}
			for _, c := range []*Costs{measured, estimated} {
				if err := c.check(); err != nil {
					t.Error(err)
				}
				if p, err := Predict(b, c, Devices{Devices: 1}); err != nil || !(p.StepMS > 0) {
					t.Errorf("%+v, %v", p, err)
				}
			}
			onGPU, err := learning(loss, "device.kind=cuda", "device.threads=0")
			if err != nil {
				t.Fatal(err)
			}
			switch b, err := plan.Resolve(onGPU, nil); {
			case err == nil:
				if _, err := Estimate(b, []int{2}, h100); err != nil {
					t.Errorf("on a GPU: %v", err)
				}
			case !strings.Contains(err.Error(), "device.kind: rank 0 is on a GPU, but part of "):
				t.Error(err)
			}
		})
	}
}

// TestBeforeBesideDevices: the reference model's pass counts against this machine's memory, but not against that of ranks with devices of
// their own.
func TestBeforeBesideDevices(t *testing.T) {
	cfg, err := learning("preference.loss=dpo", "pipeline.stages=16", "model.layers=16", "model.hidden=64")
	b := planOf(t, cfg, err)
	before, err := b.Before()
	if err != nil {
		t.Fatal(err)
	}
	c := unitCosts(2)
	c.Hidden = 64
	for _, devices := range []int{1, 16} {
		o, err := Configured(b, c, Devices{Devices: devices, BytesPerS: 1e9})
		if err != nil {
			t.Fatal(err)
		}
		var ranks int64 // of the fullest device
		for d := range o.TensorBytes {
			ranks = max(ranks, o.TensorBytes[d]+o.CheckpointBytes[d])
		}
		want := ranks
		if devices == 1 {
			want = max(ranks, before.Bytes)
		} else if ranks >= before.Bytes {
			t.Fatalf("a rank needs %d bytes, which is not less than the %d of the whole model", ranks, before.Bytes)
		}
		if o.Before == nil || o.Before.Bytes != before.Bytes || o.NeedBytes() != want {
			t.Errorf("%d devices: %d bytes, want %d; before the first step %+v", devices, o.NeedBytes(), want, o.Before)
		}
	}
}

// TestMissingTeacher: without its teacher, which a run that resumes does not need, a run has a forecast.
func TestMissingTeacher(t *testing.T) {
	cfg, err := learning("distill.from=none")
	b := planOf(t, cfg, err)
	if _, err := b.Before(); !b.MissingTeacher(err) {
		t.Errorf("%v is not about a missing teacher", err)
	}
	if o, err := Configured(b, unitCosts(2), Devices{Devices: 1}); err != nil || o.Before != nil || o.NeedBytes() == 0 {
		t.Errorf("%+v, %v", o, err)
	}
	cfg, err = learning("distill.from=" + t.TempDir()) // not a model
	b = planOf(t, cfg, err)
	if _, err := Configured(b, unitCosts(2), Devices{Devices: 1}); err == nil || b.MissingTeacher(err) {
		t.Errorf("a teacher that can't be read: %v", err)
	}
}

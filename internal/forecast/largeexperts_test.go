package forecast

import (
	"fmt"
	"os"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/internal/plan"
)

// ofExperts are the shapes of published models with experts.
var ofExperts = map[string]string{
	"Mixtral 8x7B": "family = \"mixtral\"\nlayers = 32\nhidden = 4096\nheads = 32\nkv_heads = 8\nffn = 14336\nexperts = 8\n" +
		"experts_per_token = 2\ncontext = 4096\nvocab = 32000\n",
}

// TestLargeExpertPlans: large models with experts are planned with expert groups. The search tries none for GPUs, so they are
// planned for hosts that compute as fast as an H100 is estimated to do, and have its memory and links.
func TestLargeExpertPlans(t *testing.T) {
	if os.Getenv("TROUPE_LONG_TESTS") == "" {
		t.Skip("it computes for a minute: make check-plans")
	}
	for _, c := range []struct {
		model   string
		devices int
	}{{"Mixtral 8x7B", 64}} {
		t.Run(fmt.Sprintf("%s on %d", c.model, c.devices), func(t *testing.T) {
			of := func(kind string) *plan.Plan {
				t.Helper()
				const rest = "[batch]\nsequences = 256\nmicrobatch = 1\n[data]\ntrain = [\"none\"]\n[device]\ndtype = \"bfloat16\"\n"
				cfg, err := config.Parse("experts.toml", []byte("[model]\ntie_embeddings = false\n"+ofExperts[c.model]+rest),
					[]string{"device.kind=" + kind}, os.LookupEnv)
				return planOf(t, cfg, err)
			}
			h100, _ := gpus.Named("h100")
			nodes := Nodes{Devices: 8, Within: Link{LatencyUS: 3, BytesPerS: h100.LinkBytesPerS}}
			b := of("cpu")
			costs, err := Estimate(of("cuda"), Microbatches(b.Config().Batch.Sequences, 1), h100)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Recommend(t.Context(), b, costs, Devices{Devices: c.devices, MemoryBytes: h100.MemoryBytes, LatencyUS: 10,
				BytesPerS: 50e9, PeakFLOPs: h100.BF16FLOPs, Nodes: nodes})
			if err != nil {
				t.Fatal(err)
			}
			if p.Best == nil {
				t.Fatalf("none of %d options fits", p.Tried)
			}
			o := p.Best
			t.Logf("%.2f billion parameters: %d options, %d left; tp%d cp%d ep%d dp%d pp%d zero%d, %s × %d, overlap %v, microbatch %d, "+
				"recompute %s: %.0f ms, %.0f tokens/s, MFU %.1f %%, %s", float64(b.Model().Parameters())/1e9, p.Tried, p.Left, o.Tensor,
				o.Context, o.Expert, o.Data, o.Stages, o.Zero, o.Schedule, o.Chunks, o.Overlap, o.Microbatch, o.Recompute, o.StepMS,
				o.TokensPerS, o.MFUPct, plan.GiB(float64(o.NeedBytes())))
			shared := 0
			for _, g := range p.ByGrid {
				if g.Expert > 1 {
					shared++
				}
			}
			if o.Ranks != c.devices || o.NeedBytes() > h100.MemoryBytes || shared == 0 {
				t.Errorf("%d ranks, %d bytes, %d of %d grids with expert groups", o.Ranks, o.NeedBytes(), shared, len(p.ByGrid))
			}
		})
	}
}

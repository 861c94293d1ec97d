package forecast

import (
	"fmt"
	"os"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/internal/plan"
)

// llamas are the shapes of published models, with the batches that they were trained with, or near.
var llamas = map[string]string{
	"7B":   "layers = 32\nhidden = 4096\nheads = 32\nkv_heads = 32\nffn = 11008\ncontext = 4096\nvocab = 32000\n[batch]\nsequences = 1024\n",
	"70B":  "layers = 80\nhidden = 8192\nheads = 64\nkv_heads = 8\nffn = 28672\ncontext = 8192\nvocab = 128256\n[batch]\nsequences = 512\n",
	"405B": "layers = 126\nhidden = 16384\nheads = 128\nkv_heads = 8\nffn = 53248\ncontext = 8192\nvocab = 128256\n[batch]\nsequences = 2048\n",
}

// parsed is the plan of a configuration of the model's keys, those of [batch] behind them, and more sections.
func parsed(t *testing.T, model, more string) *plan.Plan {
	t.Helper()
	cfg, err := config.Parse("llama.toml", []byte("[model]\nfamily = \"llama\"\ntie_embeddings = false\n"+model+
		"microbatch = 1\n[data]\ntrain = [\"none\"]\n"+more), nil, os.LookupEnv)
	return planOf(t, cfg, err)
}

// TestLargePlans: models of billions of parameters are planned for GPUs that this machine has none of. What is
// recommended fits, uses all of them, and is of the speed that such runs are known to have: an MFU of 30 to 48 %
// (Llama 3: 38 to 43 % on 8,192 and 16,384 H100; MegatronLM 41 to 48 %).
func TestLargePlans(t *testing.T) {
	all := os.Getenv("TROUPE_LONG_TESTS") != ""
	for _, c := range []struct {
		model   string
		devices int
		long    bool
	}{
		{"7B", 64, false},
		{"7B", 8, true}, {"7B", 1024, true},
		{"70B", 64, true}, {"70B", 256, true}, {"70B", 1024, true},
		{"405B", 1024, true}, {"405B", 8192, true},
	} {
		t.Run(fmt.Sprintf("%s on %d", c.model, c.devices), func(t *testing.T) {
			if c.long && !all {
				t.Skip("it computes for a minute: make check-plans")
			}
			b := parsed(t, llamas[c.model], "[device]\nkind = \"cuda\"\ndtype = \"bfloat16\"\n")
			h100, _ := gpus.Named("h100")
			costs, err := Estimate(b, Microbatches(b.Config().Batch.Sequences, 1), h100)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Recommend(t.Context(), b, costs, Devices{Devices: c.devices, MemoryBytes: h100.MemoryBytes, LatencyUS: 10, BytesPerS: 50e9,
				PeakFLOPs: h100.BF16FLOPs, Nodes: Nodes{Devices: 8, Within: Link{LatencyUS: 3, BytesPerS: h100.LinkBytesPerS}}})
			if err != nil {
				t.Fatal(err)
			}
			if p.Best == nil {
				t.Fatalf("none of %d options fits", p.Tried)
			}
			t.Logf("%.2f billion parameters: %d options; tp%d dp%d pp%d zero%d, %s × %d, microbatch %d, recompute %s: %.0f ms, %.0f tokens/s, MFU %.1f %%, %s",
				float64(b.Model().Parameters())/1e9, p.Tried, p.Best.Tensor, p.Best.Data, p.Best.Stages, p.Best.Zero, p.Best.Schedule, p.Best.Chunks,
				p.Best.Microbatch, p.Best.Recompute,
				p.Best.StepMS, p.Best.TokensPerS, p.Best.MFUPct, plan.GiB(float64(p.Best.NeedBytes())))
			if p.Best.Ranks != c.devices || p.Best.NeedBytes() > h100.MemoryBytes || p.Best.MFUPct < 25 || p.Best.MFUPct > 48 {
				t.Errorf("%d ranks, %d bytes, MFU %.1f %%", p.Best.Ranks, p.Best.NeedBytes(), p.Best.MFUPct)
			}
		})
	}
}

// TestWideRank: a rank of more than 2³¹ parameters, alone and as a replica, whose gradients lie in one piece of memory.
func TestWideRank(t *testing.T) {
	for _, data := range []int{1, 2} {
		b := parsed(t, "layers = 11\nhidden = 4096\nheads = 32\nffn = 11008\ncontext = 8\nvocab = 4096\n[batch]\nsequences = 2\n",
			fmt.Sprintf("[parallel]\ndata = %d\n", data))
		n := b.Model().Parameters()
		if n <= 1<<31 {
			t.Fatalf("%d parameters", n)
		}
		bytes, err := b.MemoryBytes()
		if err != nil {
			t.Fatal(err)
		}
		if bytes[0] < 16*n || float64(bytes[0]) > 17*float64(n) {
			t.Errorf("%d replicas: a rank takes %d bytes for %d parameters", data, bytes[0], n)
		}
		if _, err := b.CheckWorld(1); err != nil {
			t.Error(err)
		}
	}
}

// TestSampleOf: what is measured of a large model takes at most half of the free memory, and is narrower where need be; what it
// takes is multiplied by as much.
func TestSampleOf(t *testing.T) {
	b := parsed(t, llamas["405B"], "")
	dev, s := sampled(t, b)
	bytes, err := s.bytes(b.StageOptions(0), 1)
	if err != nil {
		t.Fatal(err)
	}
	if s.shrunk < 8 || s.decoders < 1 || s.runners < 1 || bytes > 12<<30 || s.flops(1) > mostFLOPs || s.model.Config.Hidden*s.shrunk != 16384 {
		t.Errorf("%+v of %d bytes and %g operations", s, bytes, s.flops(1))
	}
	unit := BatchCosts{Microbatch: 1, Layers: map[string]LayerCost{"E": {1, 0, 1, 1}, "t": {1, 1, 1, 2}, "L": {1, 1, 1, 2}}}
	_, own, _ := b.Model().Config.FLOPs(8192)
	_, small, _ := s.model.Config.FLOPs(8192)
	if got := s.whole(b, unit).Layers["t"].BackwardMS; got != 2*own/small {
		t.Errorf("a backward of 2 ms is %v ms of the whole, want %v", got, 2*own/small)
	}
	if _, err := sampleOf(b, b.StageOptions(0), dev, 1, false); err == nil {
		t.Error("a layer of 405B with embedding and head fits half of this machine's memory")
	}
}

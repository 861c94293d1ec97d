package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

// A resolved configuration prints as a text that resolves to the same.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.dropIdle()
		again, err := Parse("printed.toml", c.TOML(), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, c.TOML())
		}
		samePlainly(t, c, again)
	})
}

// What an earlier version has stored can be read, with keys that have no effect too:
// these count as not given.
func TestStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		stored := c.TOML()
		c.dropIdle()
		for now, earlier := range renamed { // as earlier versions wrote it
			now, earlier = earlier[strings.Index(earlier, ".")+1:], now[strings.Index(now, ".")+1:]
			stored = bytes.Replace(stored, []byte("\n"+now+" = "), []byte("\n"+earlier+" = "), 1)
		}
		again, err := ParseStored("stored.toml", stored)
		if err != nil {
			t.Fatalf("%v\n%s", err, stored)
		}
		samePlainly(t, c, again)
	})
}

// What a program with schedules of its own has stored can be read by one without.
func TestStoredSchedule(t *testing.T) {
	text := []byte("[data]\ntrain = [\"a.txt\"]\n[pipeline]\nstages = 2\nschedule = \"mine\"\n")
	c, err := ParseStored("stored.toml", text)
	if err != nil || c.Pipeline.Schedule != "mine" {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := Parse("own.toml", text, nil, nil); err == nil || !strings.Contains(err.Error(), `unknown value "mine"`) ||
		!strings.Contains(err.Error(), "auto") {
		t.Errorf("Parse: %v", err)
	}
	// So can what a version stored that had this schedule; a run is refused with what to choose instead.
	dynamic := bytes.Replace(text, []byte(`"mine"`), []byte("\"dynamic\"\nmax_in_flight = 3"), 1)
	if c, err := ParseStored("stored.toml", dynamic); err != nil || c.Pipeline.Schedule != "1f1b" || c.Pipeline.MaxInFlight != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Parse("own.toml", dynamic, nil, nil); err == nil || !strings.Contains(err.Error(), `"dynamic" was removed`) ||
		!strings.Contains(err.Error(), "zb-h1") {
		t.Errorf("Parse: %v", err)
	}
	if _, err := ParseStored("stored.toml", bytes.Replace(text, []byte("mine"), []byte("My Own"), 1)); err == nil {
		t.Error("a name that no schedule can have is read")
	}
}

// samePlainly compares what the configurations say, not where they say it.
func samePlainly(t interface{ Fatalf(string, ...any) }, a, b *Config) {
	plain := func(c *Config) Config {
		return Config{Run: c.Run, Model: c.Model, Data: c.Data, Eval: c.Eval, Batch: c.Batch,
			Optimizer: c.Optimizer, Pipeline: c.Pipeline, Parallel: c.Parallel, Device: c.Device, Telemetry: c.Telemetry}
	}
	if x, y := plain(a), plain(b); !reflect.DeepEqual(x, y) {
		t.Fatalf("not the same:\n%+v\n%+v", x, y)
	}
	if changes := everyDifference(a, b); changes != nil {
		t.Fatalf("it sees %v between equal configurations", changes)
	}
	if x, y := a.TOML(), b.TOML(); !bytes.Equal(x, y) {
		t.Fatalf("not printed the same:\n%s\n%s", x, y)
	}
}

// drawConfig makes any resolved configuration that is valid but for keys without
// effect.
func drawConfig(t *rapid.T) *Config {
	count := rapid.IntRange(1, 1000)
	text := rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "${") })
	file := text.Filter(func(s string) bool { return s != "" })
	rate := rapid.Float64Range(0, 0.999)
	c := &Config{
		Run: Run{
			Name: rapid.StringMatching(`[\pLäö0-9_][\pL0-9._ -]{0,9}`).Draw(t, "name"), Out: file.Draw(t, "out"),
			Steps: rapid.IntRange(1, MaxSteps).Draw(t, "steps"), Seed: rapid.Uint64Range(0, 1<<63-1).Draw(t, "seed"),
			EvalEvery: count.Draw(t, "eval_every"), EvalBatches: count.Draw(t, "eval_batches"),
			CheckpointEvery: count.Draw(t, "checkpoint_every"), Keep: count.Draw(t, "keep"),
			Best: rapid.SampledFrom([]string{BestWeights, BestFull, BestNone}).Draw(t, "best"), MaxSkippedSteps: count.Draw(t, "max_skipped_steps"),
			TraceEvery: rapid.IntRange(0, maxCount).Draw(t, "trace_every"),
			LogEvery:   count.Draw(t, "log_every"), StallAfterS: rapid.Float64Range(0, maxStallS).Draw(t, "stall_after_s"),
			StatsEvery: count.Draw(t, "stats_every"), SampleTokens: rapid.IntRange(1, maxSampleTokens).Draw(t, "sample_tokens"),
			SamplePrompt: text.Draw(t, "sample_prompt"), SampleTemperature: rapid.Float64Range(0, maxTemperature).Draw(t, "sample_temperature"),
		},
		Distill: Distill{Loss: "forward_kl", Temperature: 1, TopK: 64, Weight: 1},
		Data: Data{TooLong: "cut", Packing: PackNone, Split: "train", ShuffleWindow: defaultShuffleWindow, InvalidUTF8: "refuse",
			SpecialTokens: rapid.SampledFrom([]string{SpecialAsTokens, SpecialAsText}).Draw(t,
				"special_tokens"),
			Train:     rapid.SliceOfN(file, 1, 5).Draw(t, "train"),
			ValSplit:  "blocks",
			Tokenizer: rapid.SampledFrom([]string{"bytes", "chars"}).Draw(t, "tokenizer"), Format: "text",
		},
		Optimizer: Optimizer{
			Name:        rapid.SampledFrom([]string{"adamw", "sgd", "muon"}).Draw(t, "optimizer"),
			LR:          rapid.Float64Range(1e-300, maxLR).Draw(t, "lr"),
			Decay:       rapid.SampledFrom(decays).Draw(t, "decay"),
			Points:      rapid.Just([][2]float64{{1, rapid.Float64Range(1e-300, maxLR).Draw(t, "rate")}, {500, 0}}).Draw(t, "points"),
			Beta1:       rate.Draw(t, "beta1"),
			Beta2:       rate.Draw(t, "beta2"),
			Eps:         rapid.Float64Range(minEps, 1).Draw(t, "eps"),
			Momentum:    rate.Draw(t, "momentum"),
			MuonScale:   rapid.SampledFrom([]string{"match_rms_adamw", "original"}).Draw(t, "muon_scale"),
			StateDType:  rapid.SampledFrom([]string{"float32", "bfloat16", "int8"}).Draw(t, "state_dtype"),
			WeightDecay: rapid.Float64Range(0, maxWeightDecay).Draw(t, "weight_decay"),
			EMA:         rate.Draw(t, "ema"),
			ClipNorm:    rapid.Float64Range(0, maxClipNorm).Draw(t, "clip_norm"),
		},
		Pipeline: Pipeline{
			Stages: rapid.IntRange(1, maxStages).Draw(t, "stages"), Chunks: rapid.IntRange(1, maxChunks).Draw(t, "chunks"),
			Schedule:            rapid.SampledFrom(append([]string{"mine.csv"}, scheduler.Schedules()...)).Draw(t, "schedule"),
			DeferWeights:        rapid.IntRange(0, 64).Draw(t, "defer_weights"),
			MicrobatchGroupSize: rapid.IntRange(1, maxMicrobatchGroupSize).Draw(t, "group"), Layout: rapid.String().Draw(t, "layout"),
			Recompute: rapid.SampledFrom([]string{"none", "full", "partial"}).Draw(t, "recompute"),
		},
		Parallel: Parallel{Tensor: []int{1}, Context: 1, Data: 1, Expert: 1, Overlap: true, Edges: "auto", Order: grid.DefaultOrder},
		Device: Device{Kind: "cpu", DType: "float32", Residual: "float32", Threads: rapid.IntRange(0, maxThreads).Draw(t, "threads"),
			Kernels: "go"},
		Cluster: Cluster{SilenceS: rapid.Float64Range(minSilenceS, maxSilenceS/4).Draw(t, "silence_s"),
			LeaseS:       rapid.Float64Range(maxSilenceS/2, maxSilenceS).Draw(t, "lease_s"),
			MaxRestarts:  rapid.IntRange(0, maxCount).Draw(t, "max_restarts"),
			SharedFolder: rapid.SampledFrom([]string{"auto", "off"}).Draw(t, "shared_folder"),
			Shadow:       rapid.SampledFrom([]string{"auto", "on", "off"}).Draw(t, "shadow")},
		Telemetry: Telemetry{Metrics: rapid.SampledFrom([]string{"", "127.0.0.1:0", "[::1]:9464", "localhost:9464"}).Draw(t, "metrics"),
			OTLP:        rapid.SampledFrom([]string{"", "http://localhost:4318", "https://collector.example/otlp"}).Draw(t, "otlp"),
			TensorBoard: rapid.Bool().Draw(t, "tensorboard")},
	}
	if n := c.Pipeline.Stages; rapid.Bool().Draw(t, "place given") {
		c.Cluster.Place = rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,9}`), n, n).Draw(t, "place")
	}
	if n := c.Pipeline.Stages; rapid.Bool().Draw(t, "ranks given") {
		c.Device.Ranks = rapid.SliceOfN(rapid.SampledFrom(deviceKinds), n, n).Draw(t, "ranks")
	}
	if c.Pipeline.Schedule == "mine.csv" {
		c.Pipeline.DeferWeights = 0
	}
	c.Pipeline.PostValidation = rapid.Bool().Draw(t, "post_validation")
	if c.Pipeline.Schedule == "auto" {
		c.Pipeline.MaxInFlight = rapid.IntRange(0, limitInFlight).Draw(t, "bound")
	}
	c.Model.Dropout = rate.Draw(t, "dropout")
	if rapid.Bool().Draw(t, "from a checkpoint") {
		c.Model.From, c.Model.FrozenDType, c.Model.LoadBalancingType = file.Draw(t, "from"), FrozenAuto, MicrobatchBalance
	} else {
		c.Model = drawShape(t, c.Model.Dropout)
	}
	if rapid.Bool().Draw(t, "val given") {
		c.Data.Val = rapid.SliceOfN(file, 1, 5).Draw(t, "val")
	} else {
		c.Data.ValFraction = rapid.Float64Range(1e-9, 0.999).Draw(t, "val_fraction")
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "evals") {
		c.Eval = append(c.Eval, Eval{Name: fmt.Sprintf("set-%d", i), Files: rapid.SliceOfN(file, 1, 3).Draw(t, "files"),
			Format: rapid.SampledFrom([]string{"text", "documents", "uint16"}).Draw(t, "format")})
	}
	c.Batch.Microbatch = rapid.IntRange(1, 64).Draw(t, "microbatch")
	c.Batch.Sequences = c.Batch.Microbatch * rapid.IntRange(1, 64).Draw(t, "microbatches")
	c.given = map[string]Pos{"optimizer.min_lr": {}}
	c.Optimizer.MinLR = c.Optimizer.LR * rapid.Float64Range(0, 1).Draw(t, "min_lr/lr")
	c.Optimizer.WarmupSteps = rapid.IntRange(0, c.Run.Steps).Draw(t, "warmup_steps")
	if c.Pipeline.Recompute == "partial" {
		c.Pipeline.RecomputeKeep = rapid.IntRange(0, maxSequences).Draw(t, "recompute_keep")
	}
	return c
}

func drawShape(t *rapid.T, dropout float64) Model {
	m := Model{
		FrozenDType: FrozenAuto, LoadBalancingType: MicrobatchBalance,
		Family:  rapid.SampledFrom([]string{"gpt2", "llama", "mistral", "qwen3"}).Draw(t, "family"),
		Layers:  rapid.IntRange(1, MaxLayers).Draw(t, "layers"),
		KVHeads: rapid.IntRange(1, 64).Draw(t, "kv_heads"),
		FFN:     rapid.IntRange(1, MaxFFN).Draw(t, "ffn"),
		Context: rapid.IntRange(1, maxStepTokens/(64*64)).Draw(t, "context"),
		Dropout: dropout, TieEmbeddings: rapid.Bool().Draw(t, "tie_embeddings"),
		RopeTheta: rapid.Float64Range(1, MaxRopeTheta).Draw(t, "rope_theta"),
		Vocab:     rapid.IntRange(0, MaxVocab).Draw(t, "vocab"),
		MTPWeight: rapid.Float64Range(0, maxMTPWeight).Draw(t, "mtp_weight"),
	}
	m.MTPLayers = rapid.IntRange(0, min(MaxMTPLayers, m.Context-1)).Draw(t, "mtp_layers")
	m.Heads = m.KVHeads
	if m.Family != "gpt2" {
		m.Heads *= rapid.IntRange(1, 8).Draw(t, "heads in a group")
		m.HeadDim = 2 * rapid.IntRange(0, 64).Draw(t, "half of head_dim")
	}
	if m.Family == "mistral" || m.Family == "qwen3" {
		m.Window = rapid.IntRange(0, MaxContext).Draw(t, "window")
	}
	m.Hidden = m.Heads * 2 * rapid.IntRange(1, 64).Draw(t, "half the head size")
	return m
}

// FuzzParse: whatever the file and the command line hold, Parse neither panics
// nor says anything but plain lines, and what it takes reads back as the same.
func FuzzParse(f *testing.F) {
	f.Add(Template(), "run.steps=5")
	f.Add([]byte("data = { train = ['${V}${N:-x}'] }"), "model.from=${V}")
	f.Add([]byte("data.train = ['''\na''']\nrun.name = \"\\u00e4\""), "optimizer.lr=1e-3")
	f.Add([]byte("run.out = \"\u009b2J\u202e\u2028\\u009b\"\ndata.\u009b = 1\n\u202e"), "run.out=\u009b")
	f.Add([]byte(`data.train = [{ "a\nb" = 1, "a\nb" = 2 }]`), "x")
	files, err := filepath.Glob("testdata/*/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "data.train=['a', \"b\"]")
	}
	f.Fuzz(func(t *testing.T, text []byte, set string) {
		c, err := Parse("config.toml", text, []string{set}, lookupIn(map[string]string{"V": "v", "D": "$"}))
		if err != nil {
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("got %v, want Errors", err)
			}
			for _, e := range errs {
				if strings.ContainsFunc(e.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("not a plain line: %q", e.Error())
				}
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("what Parse took, Validate refuses: %v", err)
		}
		again, err := Parse("printed.toml", c.TOML(), nil, nil)
		if err != nil {
			t.Fatalf("printed, it does not read back: %v\n%s", err, c.TOML())
		}
		samePlainly(t, c, again)
	})
}

// What was set for samples is set in what is printed, also where it is the default: data of a
// registered format get what was set, and nothing else.
func TestPrintedSamplesAreSet(t *testing.T) {
	text := "[run]\nout = \"o\"\n[model]\nfamily = \"mlp\"\n[data]\nformat = \"csv\"\ntrain = [\"a.csv\"]\nlabel = \"y\"\n"
	for set, want := range map[string]bool{"": false, "header = true\nseparator = \",\"\n": true} {
		c, err := Parse("a.toml", []byte(text+set), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseStored("b.toml", c.TOML())
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"data.header", "data.separator"} {
			if again.IsSet(key) != want {
				t.Errorf("%s, set %v: after printing %v", key, want, again.IsSet(key))
			}
		}
	}
}

// Runs that are older than data.special_tokens took names of special tokens for text.
func TestStoredSpecialTokens(t *testing.T) {
	for text, want := range map[string]string{
		"train = ['a.txt']":                                                          SpecialAsText,
		"train = ['a.jsonl']\nformat = 'documents'":                                  SpecialAsText,
		"train = ['a.jsonl']\nformat = 'documents'\nspecial_tokens = 'tokens'":       SpecialAsTokens,
		"train = ['a.csv']\nformat = 'csv'\n[model]\nfamily = 'mlp'":                 SpecialAsTokens,
		"train = ['a.bin']\nformat = 'uint16'\n[model]\nvocab = 9":                   SpecialAsTokens,
		"train = ['a.txt']\nspecial_tokens = 'text'\nformat = 'text'\nval = ['b.x']": SpecialAsText,
	} {
		stored, err := ParseStored("stored.toml", []byte("[data]\n"+text))
		if err != nil || stored.Data.SpecialTokens != want {
			t.Errorf("%s: %q, want %q, %v", text, stored.Data.SpecialTokens, want, err)
		}
		now, err := Parse("now.toml", []byte("[data]\n"+text), nil, nil)
		if asked := strings.Contains(text, "'text'\nformat"); err != nil || (now.Data.SpecialTokens == SpecialAsText) != asked {
			t.Errorf("today, %s: %q, %v", text, now.Data.SpecialTokens, err)
		}
	}
}

// What is printed leaves the number of chunks to the table where nobody has given it: who reads it again has not read the table either.
func TestChunksOfTable(t *testing.T) {
	for _, c := range []struct {
		text string
		read int // of the table; 0: it was not read
		set  bool
		want int
	}{
		{"", 0, false, 1}, {"\nchunks = 1", 0, true, 1}, {"\nchunks = 2", 0, true, 2}, {"", 2, true, 2}, {"", 1, false, 1},
	} {
		cfg, err := Parse("c.toml", []byte("[data]\ntrain = ['a.txt']\n[pipeline]\nstages = 2\nschedule = 'own.csv'"+c.text), nil, nil)
		if err == nil && c.read > 0 {
			cfg = cfg.WithChunks(c.read)
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseStored("stored.toml", cfg.TOML())
		if err != nil || again.IsSet("pipeline.chunks") != c.set || again.Pipeline.Chunks != c.want {
			t.Errorf("%+v: %d chunks, set %v, %v", c, again.Pipeline.Chunks, again.IsSet("pipeline.chunks"), err)
		}
	}
}

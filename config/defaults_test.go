package config

import "testing"

// The resolved form of the shortest configuration is the list of all defaults.
func TestDefaults(t *testing.T) {
	compareGolden(t, "testdata/defaults.toml", string(parse(t, "data.train = ['a.txt']").TOML()))
}

func TestDefaultsThatFollow(t *testing.T) {
	const apart = `device.ranks=["cuda", "cpu"]` // a device for each of two ranks
	for _, c := range []struct {
		sets      []string
		key, want string
	}{
		{[]string{"run.name=abc"}, "run.out", `"runs/abc"`},
		{[]string{"run.name=abc", "run.out=x"}, "run.out", `"x"`},
		{[]string{"model.heads=8"}, "model.kv_heads", "8"},
		{[]string{"model.hidden=64"}, "model.ffn", "256"},
		{[]string{"model.hidden=1048576"}, "model.ffn", "4194304"},
		{[]string{"model.hidden=64", "model.ffn=100"}, "model.ffn", "100"},
		{[]string{"model.family=llama"}, "model.ffn", "352"},                        // 341.3 up to 11*32
		{[]string{"model.family=llama", "model.hidden=24"}, "model.ffn", "64"},      // exactly 64
		{[]string{"model.family=llama", "model.hidden=4096"}, "model.ffn", "10944"}, // 10922.7
		{[]string{"model.family=llama"}, "model.tie_embeddings", "false"},
		{[]string{"model.family=llama", "model.tie_embeddings=true"}, "model.tie_embeddings", "true"},
		{[]string{"data.val=b"}, "data.val_fraction", "0.0"},
		{[]string{"data.val=[]"}, "data.val_fraction", "0.1"},
		{[]string{"batch.sequences=12"}, "batch.microbatch", "4"},
		{[]string{"batch.sequences=9"}, "batch.microbatch", "3"},
		{[]string{"batch.sequences=2"}, "batch.microbatch", "2"},
		{[]string{"batch.sequences=7"}, "batch.microbatch", "1"},
		{[]string{"optimizer.lr=0.5"}, "optimizer.min_lr", "0.05"},
		{[]string{"run.steps=30"}, "optimizer.warmup_steps", "3"},
		{[]string{"run.steps=5000"}, "optimizer.warmup_steps", "100"},
		{[]string{"pipeline.stages=3"}, "pipeline.schedule", `"1f1b"`},
		{[]string{"pipeline.stages=3", "pipeline.chunks=2"}, "pipeline.schedule", `"interleaved"`},
		{[]string{"pipeline.chunks=2"}, "pipeline.schedule", `"none"`},
		{[]string{"pipeline.stages=3", "pipeline.schedule=gpipe"}, "pipeline.schedule", `"gpipe"`},
		{[]string{"pipeline.stages=3"}, "pipeline.post_validation", "false"},
		{[]string{"pipeline.stages=3", "pipeline.schedule=zb-h1"}, "pipeline.post_validation", "false"},
		{[]string{"pipeline.stages=3", "pipeline.schedule=zb-h2"}, "pipeline.post_validation", "false"},
		{[]string{apart, "pipeline.stages=2", "pipeline.schedule=zb-h2"}, "pipeline.post_validation", "false"},
		{[]string{apart, "pipeline.stages=2", "pipeline.schedule=zb-h2", "model.tie_embeddings=false"}, "pipeline.post_validation", "true"},
		{[]string{apart, "pipeline.stages=2", "pipeline.schedule=zb-h2", "model.family=llama"}, "pipeline.post_validation", "true"},
		{[]string{apart, "pipeline.stages=2", "pipeline.schedule=zb-h2", "model.family=llama", "model.mtp_layers=1"}, "pipeline.post_validation",
			"false"},
		{[]string{apart, "pipeline.stages=2", "pipeline.schedule=zb-v"}, "pipeline.post_validation", "true"},
		{[]string{"pipeline.stages=2", "pipeline.schedule=zb-v"}, "pipeline.post_validation", "false"},
		{[]string{`device.ranks=["cuda", "cuda"]`, "pipeline.stages=2", "pipeline.schedule=zb-v"}, "pipeline.post_validation", "false"},
		{[]string{`device.ranks=["cpu", "auto"]`, "pipeline.stages=2", "pipeline.schedule=zb-v"}, "pipeline.post_validation", "false"},
		{[]string{"pipeline.stages=1", "pipeline.schedule=zb-v"}, "pipeline.post_validation", "false"},
		{[]string{"pipeline.stages=2", "pipeline.schedule=dualpipev"}, "pipeline.post_validation", "false"},
		{[]string{"pipeline.stages=2", "pipeline.schedule=zb-v", "pipeline.post_validation=false"}, "pipeline.post_validation", "false"},
		{[]string{"pipeline.stages=2", "pipeline.schedule=a.csv", "pipeline.post_validation=true"}, "pipeline.post_validation", "true"},
		{[]string{"pipeline.stages=3"}, "pipeline.microbatch_group_size", "3"},
		{[]string{"pipeline.stages=4", "pipeline.chunks=2", "batch.sequences=15", "batch.microbatch=1"}, "pipeline.microbatch_group_size", "5"},
		{[]string{"pipeline.stages=4", "pipeline.chunks=2", "batch.sequences=15", "batch.microbatch=1", "pipeline.schedule=own.CSV"},
			"pipeline.microbatch_group_size", "4"},
		{[]string{"pipeline.stages=4", "pipeline.chunks=2", "batch.sequences=2", "batch.microbatch=1"}, "pipeline.microbatch_group_size", "2"},
		{[]string{"pipeline.stages=4", "pipeline.chunks=2", "batch.sequences=15", "batch.microbatch=1", "parallel.data=3"},
			"pipeline.microbatch_group_size", "5"},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|t|tL"}, "pipeline.chunks", "2"},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|t|tL"}, "pipeline.schedule", `"interleaved"`},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|t|tL", "pipeline.schedule=zb-v"}, "pipeline.chunks", "2"},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|t|tL", "pipeline.schedule=auto"}, "pipeline.chunks", "2"},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|t|tL", "pipeline.schedule=1f1b"}, "pipeline.chunks", "1"},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|tL", "pipeline.schedule=u-shape"}, "pipeline.chunks", "2"},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|tL"}, "pipeline.chunks", "1"},
		{[]string{"pipeline.stages=2", "pipeline.layout=Et|t|t|tL", "pipeline.chunks=1"}, "pipeline.chunks", "1"},
		{[]string{"pipeline.stages=3", "pipeline.microbatch_group_size=0"}, "pipeline.microbatch_group_size", "3"},
		{[]string{"pipeline.stages=3", "pipeline.microbatch_group_size=5"}, "pipeline.microbatch_group_size", "5"},
	} {
		if got := value(parse(t, "data.train = ['a.txt']", c.sets...), c.key); got != c.want {
			t.Errorf("--set %q gives %s = %s, want %s", c.sets, c.key, got, c.want)
		}
	}
}

package data

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// texts writes the text to train on, and half of it to validate on, into a folder.
func texts(t *testing.T) (train, val string) {
	t.Helper()
	dir := t.TempDir()
	text := testrun.Read(t, "testdata/troupe.txt")
	return testrun.Write(t, filepath.Join(dir, "train.txt"), text), testrun.Write(t, filepath.Join(dir, "val.txt"), text[len(text)/2:])
}

// TestMovedData: the same texts in another place are the same data.
func TestMovedData(t *testing.T) {
	train1, val1 := texts(t)
	train2, val2 := texts(t)
	out := testrun.Trained(t, "data.train="+train1, "data.val="+val1, "optimizer.decay=constant")
	want := testrun.Trained(t, "data.train="+train1, "data.val="+val1, "optimizer.decay=constant", "run.steps=8")
	if err := os.RemoveAll(filepath.Dir(train1)); err != nil {
		t.Fatal(err)
	}
	_, events := testrun.Train(t, out, "data.train="+train2, "data.val="+val2, "optimizer.decay=constant", "run.steps=8")
	if w := testrun.EventsOf[troupe.WarningEvent](events); len(w) > 0 {
		t.Errorf("warnings %v", w)
	}
	testrun.SameFigures(t, want, out)
}

// TestChangedData: other content is refused, though it has as many tokens, and accepted
// on a person's word, which the checkpoints keep.
func TestChangedData(t *testing.T) {
	trainFile, valFile := texts(t)
	sets := []string{"data.train=" + trainFile, "data.val=" + valFile, "optimizer.decay=constant"}
	base := testrun.Trained(t, sets...)
	first := testrun.TrainerState(t, base, 6)
	if first.Data.Val == nil || first.Data.Train.Bytes != 12249 || first.Data.Val.Files != 1 || first.BestStep == 0 ||
		first.EvalWindows != 16 {
		t.Fatalf("the checkpoint says %+v", first)
	}
	for _, tt := range []struct {
		name, file, key string
		bestEnds        int // 1: the best validation loss so far is another text's
		change          func(string) string
	}{
		{"a letter to train on", trainFile, "data.train", 0, func(s string) string { return strings.Replace(s, "a", "b", 1) }},
		{"a line more", trainFile, "data.train", 0, func(s string) string { return s + "One line more.\n" }},
		{"an easier text to validate on", valFile, "data.val", 1, func(s string) string { return strings.Repeat("a", len(s)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, before := testrun.CopyTree(t, base), testrun.Read(t, tt.file)
			defer testrun.Write(t, tt.file, before)
			testrun.Write(t, tt.file, tt.change(before))
			testrun.Refused(t, testrun.NewConfig(t, out, append(sets, "run.steps=9")...), troupe.Options{}, troupe.ErrOutput, tt.key, "content",
				"--accept-new-data", out)
			run, err := troupe.Start(context.Background(), testrun.NewConfig(t, out, append(sets, "run.steps=9")...),
				troupe.Options{AcceptNewData: true})
			if err != nil {
				t.Fatal(err)
			}
			_, events := testrun.Finish(t, run)
			w := testrun.EventsOf[troupe.WarningEvent](events)
			if len(w) != 1+tt.bestEnds || !strings.Contains(w[0].Text, tt.key) || tt.bestEnds == 1 &&
				!strings.Contains(w[1].Text, "best validation loss") {
				t.Errorf("warnings %v", w)
			}
			last := testrun.TrainerState(t, out, 9)
			if len(last.Decisions) != 1 || last.Decisions[0].Kind != trainstate.NewData || last.Decisions[0].Step != 6 ||
				!strings.Contains(last.Decisions[0].Detail, tt.key) {
				t.Errorf("recorded: %+v", last.Decisions)
			}
			if (last.FirstValLoss == nil) != (tt.bestEnds == 1) || last.Data.Train.Difference(first.Data.Train) == "" &&
				last.Data.Val.Difference(*first.Data.Val) == "" {
				t.Errorf("the checkpoint says %+v", last)
			}
			// From now on the new data is the run's.
			testrun.Train(t, out, append(sets, "run.steps=10")...)
		})
	}
}

// TestChangedTextIsSaidFirst: a text that has changed is refused for that, also where the
// tokenizer doesn't know its characters any more.
func TestChangedTextIsSaidFirst(t *testing.T) {
	trainFile, valFile := texts(t)
	sets := []string{"data.train=" + trainFile, "data.val=" + valFile, "data.tokenizer=chars"}
	out := testrun.Trained(t, sets...)
	for key, file := range map[string]string{"data.train": trainFile, "data.val": valFile} {
		before := testrun.Read(t, file)
		testrun.Write(t, file, before+"\u2654")
		testrun.Refused(t, testrun.NewConfig(t, out, sets...), troupe.Options{}, troupe.ErrOutput, key, "content", "--accept-new-data")
		testrun.Refused(t, testrun.NewConfig(t, out, sets...), troupe.Options{AcceptNewData: true}, nil, key, "vocabulary", filepath.Base(file))
		testrun.Write(t, file, before)
	}
	testrun.Write(t, valFile, testrun.Read(t, valFile)+"\u2654")
	_, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}})
	if err == nil || !strings.Contains(err.Error(), "the validation text of the run has changed") {
		t.Errorf("evaluating gave %v", err)
	}
}

// TestEvaluateWithoutTrainingText: a validation text of its own is all that it needs.
func TestEvaluateWithoutTrainingText(t *testing.T) {
	trainFile, valFile := texts(t)
	out := testrun.Trained(t, "data.train="+trainFile, "data.val="+valFile)
	if err := os.Remove(trainFile); err != nil {
		t.Fatal(err)
	}
	o := troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}}
	if res, err := troupe.Evaluate(context.Background(), o); err != nil || res.Tokens != int64(len(testrun.Read(t, valFile)))-1 {
		t.Errorf("%+v, %v", res, err)
	}
	testrun.Rewrite(t, out, 6, func(files map[string][]byte) {
		files["trainer.json"] = []byte(strings.Replace(string(files["trainer.json"]), `"format_version": 2`, `"format_version": 3`, 1))
	})
	if _, err := troupe.Evaluate(context.Background(), o); !errors.Is(err, checkpoint.ErrVersion) ||
		!strings.Contains(err.Error(), "trainer.json") {
		t.Errorf("of a newer program: %v", err)
	}
}

// TestDataUnreadableNow: what keeps the system from reading data at the moment is told
// apart from data that can't be used.
func TestDataUnreadableNow(t *testing.T) {
	const short = "/sys/kernel/mm/transparent_hugepage/enabled" // has less in it than its size says
	if info, err := os.Stat(short); err != nil || info.Size() == int64(len(testrun.Read(t, short))) {
		t.Skip("there is no such file here")
	}
	for _, tt := range []struct {
		file  string
		again bool
	}{{short, true}, {filepath.Join(t.TempDir(), "gone.txt"), false}} {
		_, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "data.train="+tt.file),
			troupe.Options{})
		if setup := new(troupe.SetupError); err == nil || checkpoint.TryAgain(err) != tt.again || errors.As(err, &setup) == tt.again ||
			!strings.Contains(err.Error(), "data.train") {
			t.Errorf("%s: %v; trying again may help: %v", tt.file, err, checkpoint.TryAgain(err))
		}
	}
}

// TestOtherValidation: the best loss is one of validations of the same windows.
func TestOtherValidation(t *testing.T) {
	out := testrun.Trained(t, "optimizer.decay=constant")
	was := testrun.TrainerState(t, out, 6)
	_, events := testrun.Train(t, out, "optimizer.decay=constant", "run.steps=9", "run.eval_batches=4")
	if w := testrun.EventsOf[troupe.WarningEvent](events); len(w) != 1 || !strings.Contains(w[0].Text, "now has 32 windows, not 16") {
		t.Errorf("warnings %v", w)
	}
	if is := testrun.TrainerState(t, out, 9); was.BestStep == 0 || is.BestStep != 9 || is.FirstValLoss != nil || is.EvalWindows != 32 {
		t.Errorf("the state was %+v, it is %+v", was, is)
	}
	_, events = testrun.Train(t, out, "optimizer.decay=constant", "run.steps=12", "run.eval_batches=4")
	if w := testrun.EventsOf[troupe.WarningEvent](events); len(w) > 0 {
		t.Errorf("warnings %v", w)
	}
}

// TestValidatedFilesAreNotTrainedOn, under whatever name.
func TestValidatedFilesAreNotTrainedOn(t *testing.T) {
	trainFile, valFile := texts(t)
	dir := filepath.Dir(trainFile)
	if err := os.Symlink("val.txt", filepath.Join(dir, "other.txt")); err != nil {
		t.Skip(err)
	}
	globs := []string{"data.train=" + filepath.Join(dir, "*.txt"), "data.val=" + valFile}
	out := filepath.Join(t.TempDir(), "out")
	_, events := testrun.Train(t, out, globs...)
	w := testrun.EventsOf[troupe.WarningEvent](events)
	if len(w) != 1 || !strings.Contains(w[0].Text, "data.val also matches 2 of the files of data.train") ||
		!strings.Contains(w[0].Text, `other.txt"`) || !strings.Contains(w[0].Text, `val.txt"`) {
		t.Errorf("warnings %v", w)
	}
	testrun.SameFigures(t, testrun.Trained(t, "data.train="+trainFile, "data.val="+valFile), out)

	none := testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), "data.train="+valFile, "data.val="+valFile)
	testrun.Refused(t, none, troupe.Options{}, nil, "data.train", "nothing to train on", "val.txt")
	if err := troupe.Check(none); err == nil || !strings.Contains(err.Error(), "nothing to train on") {
		t.Errorf("Check: %v", err)
	}
}

// TestEpochs: a run says how long an epoch is and how many it makes.
func TestEpochs(t *testing.T) {
	for _, tt := range []struct {
		sets    []string
		windows int64
	}{
		{nil, 688}, // (11024 tokens to train on − 1 target − up to 15 at the beginning) / 16
		{[]string{"data.val_split=tail"}, 688},
		{[]string{"model.context=128", "data.val_fraction=0.5"}, 46},
	} {
		run := testrun.Start(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), tt.sets...))
		testrun.Finish(t, run)
		i := run.Info()
		if i.EpochWindows != tt.windows || i.EpochSteps != float64(tt.windows)/8 || math.Abs(i.Epochs-6/i.EpochSteps) > 1e-12 {
			t.Errorf("%v: an epoch of %d windows, %g steps, %g of them", tt.sets, i.EpochWindows, i.EpochSteps, i.Epochs)
		}
	}
}

// TestSplits: a run with the tail trains on other text than one with blocks, and each is
// evaluated on its own.
func TestSplits(t *testing.T) {
	var losses []float64
	for _, split := range []string{"blocks", "tail"} {
		out := testrun.Trained(t, "data.val_split="+split, "run.eval_batches=1000", "data.val_fraction=0.2")
		res, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}})
		if err != nil {
			t.Fatal(err)
		}
		// The run leaves the rest out that fills no window.
		val := *testrun.Records(t, out)[6].ValLoss
		if math.Abs(res.Loss-val) > 0.01 {
			t.Errorf("%s: the run ended at %g, evaluated it has %g", split, val, res.Loss)
		}
		losses = append(losses, res.Loss)
	}
	if losses[0] == losses[1] {
		t.Errorf("both are evaluated alike: %g", losses[0])
	}
}

// TestOldOrder: a checkpoint from before there were epochs is not gone on from, with the
// reason; its model can be used, and it is evaluated on the text that it was split from.
func TestOldOrder(t *testing.T) {
	out := testrun.Trained(t, "data.val_split=tail")
	asBefore := func(text string) string {
		var all map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		all["format_version"] = 1
		for _, key := range []string{"data", "eval_windows"} {
			delete(all, key)
		}
		b, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	eval := func() float64 {
		res, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Loss
	}
	want := eval()
	withoutSplit := func(text string) string { return strings.Replace(text, "val_split = \"tail\"\n", "", 1) }
	testrun.Rewrite(t, out, 6, func(files map[string][]byte) {
		files["trainer.json"] = []byte(asBefore(string(files["trainer.json"])))
		files["config.toml"] = []byte(withoutSplit(string(files["config.toml"])))
	})
	testrun.Write(t, filepath.Join(out, "config.toml"), withoutSplit(testrun.Read(t, filepath.Join(out, "config.toml"))))
	testrun.Refused(t, testrun.NewConfig(t, out, "run.steps=9"), troupe.Options{}, nil, "step-00000006", "format version 1", "once an epoch",
		"model.from")
	if got := eval(); got != want {
		t.Errorf("evaluated, it has %g instead of %g", got, want)
	}
	if err := troupe.Generate(context.Background(), troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: out},
		TextOptions: troupe.TextOptions{Tokens: 3}},
		func([]byte) error { return nil }); err != nil {
		t.Error(err)
	}
	if res, _ := testrun.Train(t, filepath.Join(t.TempDir(), "out"), "model.from="+out); res.Step != 6 {
		t.Errorf("a run from its weights ended at step %d", res.Step)
	}
}

// TestFromIsGone: what a run began from isn't needed any more to go on.
func TestFromIsGone(t *testing.T) {
	for name, family := range testrun.Families {
		t.Run(name, func(t *testing.T) {
			from := testrun.Trained(t, family...)
			sets := slices.Concat(family, []string{"model.from=" + from})
			out := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, out, sets...)
			if err := os.RemoveAll(from); err != nil {
				t.Fatal(err)
			}
			if res, _ := testrun.Train(t, out, append(sets, "run.steps=8")...); res.Step != 8 {
				t.Errorf("it ended at step %d", res.Step)
			}
			testrun.Refused(t, testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), sets...), troupe.Options{}, nil, "model.from", from)
		})
	}
}

// TestTextNotUTF8: a run and an evaluation refuse text that is not UTF-8, with its place, unless its bytes are asked for.
func TestTextNotUTF8(t *testing.T) {
	latin := testrun.Write(t, filepath.Join(t.TempDir(), "latin1.txt"), strings.ReplaceAll(testrun.Read(t, "testdata/troupe.txt"), "a",
		"\xe4"))
	out := filepath.Join(t.TempDir(), "out")
	testrun.Refused(t, testrun.NewConfig(t, out, "data.train="+latin), troupe.Options{}, data.ErrNotText, "data.train", "latin1.txt, byte ",
		"(line 1)", "0xe4", `data.invalid_utf8 = "bytes"`)
	testrun.Train(t, out, "data.train="+latin, "data.invalid_utf8=bytes")
	testrun.Train(t, out, "data.train="+latin, "data.invalid_utf8=bytes", "run.steps=7") // it is resumed
	for _, tt := range []struct {
		invalid string
		refused bool
	}{{"", false}, {"bytes", false}, {"refuse", true}} { // the run's own, if it is not said
		_, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out}, Data: []string{latin},
			InvalidUTF8: tt.invalid})
		if errors.Is(err, data.ErrNotText) != tt.refused || !tt.refused && err != nil {
			t.Errorf("invalid UTF-8 as %q: %v", tt.invalid, err)
		}
	}
	if _, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: out},
		InvalidUTF8: "drop"}); !errors.Is(err, troupe.ErrOptions) {
		t.Errorf("another word: %v", err)
	}
}

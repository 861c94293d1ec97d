package infer

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// exportTexts adapts the text files of a model for an export, and returns what it changed.
func exportTexts(ckpt *checkpoint.Checkpoint, kept rundir.Kept) (changed []string, err error) {
	tok, err := rundir.ReadTokenizer(ckpt)
	if checkpoint.TryAgain(err) {
		return nil, err
	}
	if err != nil { // the files of an unsupported tokenizer are not changed
		return nil, nil
	}
	text, err := nameEnds(kept, tok)
	if text != "" {
		changed = append(changed, text)
	}
	return changed, err
}

// nameEnds adds all tokens at which generation stops to generation_config.json, if the model's files do
// not agree or the chat template ends answers with another token: other programs read only that file. It returns
// a description of the change if the model came with the file.
func nameEnds(kept rundir.Kept, tok tokenizer.Tokenizer) (changed string, err error) {
	if tok == nil {
		return "", nil
	}
	talk, err := rundir.ReadTalk(kept, tok)
	if err != nil {
		return "", err
	}
	ends := corpus.NewText(tok, talk, "").Stops([]chat.Message{{Role: "user", Content: "x"}}, chat.Options{})
	was, err := rundir.GenerationEnds(kept)
	if err != nil || len(ends) == 0 || !slices.ContainsFunc(ends, func(id int32) bool { return !slices.Contains(was, id) }) {
		return "", err
	}
	_, given := kept.Texts[rundir.GenerationFile]
	if kept.Texts[rundir.GenerationFile], err = rundir.WithEnds(kept, ends); err != nil {
		return "", err
	}
	if !given { // a new file changes nothing of the model's
		return "", nil
	}
	return fmt.Sprintf("changed eos_token_id in %s to %s, so that other programs stop where engine generate does; it was %s",
		rundir.GenerationFile, idsText(ends), idsText(was)), nil
}

func idsText(ids []int32) string {
	text, _ := json.Marshal(append([]int32{}, ids...)) // numbers never fail
	return string(text)
}

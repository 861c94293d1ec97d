package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

func parseUnigram(s settings) (*unigram, error) {
	u := &unigram{unk: -1}
	var unk *int64
	if err := errors.Join(s.into("unk_id", &unk), s.into("byte_fallback", &u.byteFallback)); err != nil {
		return nil, err
	}
	if err := u.parseScores(s["vocab"]); err != nil {
		return nil, err
	}
	if unk != nil {
		if *unk < 0 || *unk >= int64(len(u.tokens)) {
			return nil, fmt.Errorf("unk_id is %d, outside of the vocabulary of %d tokens", *unk, len(u.tokens))
		}
		u.unk = int32(*unk)
	}
	u.prepare()
	return u, nil
}

// parseScores reads pairs of a token and its score, whose ids are their places.
func (u *unigram) parseScores(data json.RawMessage) error {
	impossible := func() error {
		if data == nil {
			data = json.RawMessage("null")
		}
		return fmt.Errorf("vocab has the impossible value %s: it must be a list of tokens with scores, such as [\"a\", -1.5]", clip(data))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if first, err := dec.Token(); err != nil || first != json.Delim('[') {
		return impossible()
	}
	u.ids = make(map[string]int32)
	lowest, size := math.Inf(1), 0
	for dec.More() {
		id := len(u.tokens)
		var parts [4]json.Token
		for i := range parts {
			var err error
			if parts[i], err = dec.Token(); err != nil {
				return impossible()
			}
		}
		name, isText := parts[1].(string)
		number, isNumber := parts[2].(json.Number)
		if parts[0] != json.Delim('[') || !isText || !isNumber || parts[3] != json.Delim(']') {
			return fmt.Errorf("vocab: token %d is not a pair of a text and a number", id)
		}
		score, ok := looseFloat(number.String())
		if !ok {
			return fmt.Errorf("vocab: the score of %s is %s", quote(name), clip(number.String()))
		}
		if size += len(name); id == maxTokens || size > maxTrieBytes {
			return fmt.Errorf("vocab has more than %d tokens or %d bytes of tokens, the limits", maxTokens, maxTrieBytes)
		}
		u.ids[name] = int32(id) // of equal tokens the last one counts
		u.tokens, u.has, u.scores = append(u.tokens, name), append(u.has, true), append(u.scores, score)
		lowest = min(lowest, score)
	}
	if u.size = len(u.tokens); u.size == 0 {
		return errors.New("vocab is empty")
	}
	u.unkScore = lowest - unkPenalty
	return nil
}

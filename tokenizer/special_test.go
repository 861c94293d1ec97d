package tokenizer

import (
	"reflect"
	"strings"
	"testing"
)

func TestReadSpecial(t *testing.T) {
	tok := chars(t, "abcde")
	none := Special{BOS: -1, PAD: -1}
	for _, tt := range []struct {
		name, config, generation, tokenizer string
		want                                Special
		says                                string
	}{
		{"nothing", "", "", "", none, ""},
		{"nulls", `{"eos_token_id": null, "pad_token_id": -1}`, "", `{"bos_token": null}`, none, ""},
		{"a model's", `{"bos_token_id": 1, "eos_token_id": 2}`, "", "", Special{BOS: 1, PAD: -1, EOS: []int32{2}, Stop: []int32{2}}, ""},
		{"a list", `{"eos_token_id": [2, 4]}`, "", "", Special{BOS: -1, PAD: -1, EOS: []int32{2, 4}, Stop: []int32{2, 4}}, ""},
		{"all three", `{"eos_token_id": 1, "pad_token_id": 0}`, `{"eos_token_id": [3, 1]}`, `{"eos_token": {"content": "d", "lstrip": false}, "bos_token": "a"}`,
			Special{BOS: 0, PAD: 0, EOS: []int32{3}, Stop: []int32{3, 1}}, ""},
		{"the tokenizer's alone", `{}`, `{}`, `{"eos_token": "e"}`, Special{BOS: -1, PAD: -1, EOS: []int32{4}, Stop: []int32{4}}, ""},
		{"an unknown token", "", "", `{"eos_token": "<end>"}`, none, `tokenizer_config.json: eos_token: the tokenizer has no token "<end>"`},
		{"nothing to pad with", "", "", `{"pad_token": "<pad>"}`, none, ""},
		{"no token", "", "", `{"pad_token": 3}`, none, "pad_token: found 3 where a token's name"},
		{"no id", `{"eos_token_id": "2"}`, "", "", none, `config.json: eos_token_id: found "2"`},
		{"a negative id", "", `{"eos_token_id": [-2]}`, "", none, "generation_config.json: eos_token_id: the id -2"},
		{"a huge id", `{"bos_token_id": 4294967296}`, "", "", none, "4294967296"},
		{"no object", `[]`, "", "", none, "config.json: "},
	} {
		file := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		got, err := ReadSpecial(tok, file(tt.config), file(tt.generation), file(tt.tokenizer))
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.says)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	if id, ok := (Special{EOS: []int32{3, 4}}).EndID(); id != 3 || !ok {
		t.Errorf("EndID = %d, %v", id, ok)
	}
	if _, ok := none.EndID(); ok {
		t.Error("an end without a token for it")
	}
}

package infer

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// transformers' AutoTokenizer chooses a class from tokenizer_config.json, or without one from the model's type. The
// classes of GPT-2 and Qwen split texts in their own way and ignore tokenizer.json.

// plainClass is the class that uses tokenizer.json unchanged.
const plainClass = "PreTrainedTokenizerFast"

// fixedClasses are classes that AutoTokenizer uses for models of a type even if tokenizer_config.json says otherwise, as
// of transformers 5.24. A tokenizer.json with the class's pattern has the same ids there.
var fixedClasses = map[string]struct{ class, pattern, instead string }{
	stages.Qwen2: {"Qwen2Tokenizer", `|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|`,
		" A new model (without model.from) can use family qwen3 instead"},
	"qwen3_5": {"Qwen3_5Tokenizer", `|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|`, ""},
}

// tokenizerFiles adds the files that other programs need to encode texts as in the training. It warns if
// they will encode differently.
func tokenizerFiles(family string, files map[string][]byte, from rundir.Files) (warnings []string, err error) {
	file := files[rundir.TokensFile]
	if file == nil {
		return nil, nil
	}
	tok, err := tokenizer.Unmarshal(file)
	if err != nil {
		return nil, nil // another program may support it: the file is copied unchanged
	}
	if files[rundir.TokenizerConfigFile] == nil {
		about := map[string]any{"tokenizer_class": plainClass, "clean_up_tokenization_spaces": false}
		talk, _ := rundir.ReadTalk(from, tok) // another program may read what fails here
		for _, id := range talk.Ends {
			if name, ok := tok.Token(id); ok && tok.IsSpecial(id) {
				about["eos_token"] = name
				break
			}
		}
		text, err := json.MarshalIndent(about, "", "  ")
		if err != nil {
			return nil, err
		}
		files[rundir.TokenizerConfigFile] = append(text, '\n')
	}
	if fixed, ok := fixedClasses[family]; ok && !bytes.Contains(file, []byte(fixed.pattern)) {
		warnings = append(warnings,
			fmt.Sprintf("transformers' AutoTokenizer uses %[1]s for models of family %[2]s. %[1]s splits texts differently from this tokenizer, and its end token may have no row in the model. Load the tokenizer with %[3]s.from_pretrained.%[4]s",
				fixed.class, family, plainClass, fixed.instead))
	}
	return warnings, nil
}

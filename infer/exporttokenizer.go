package infer

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
)

// transformers' AutoTokenizer chooses a class by tokenizer_config.json, and without one by the model's type. The
// classes of GPT-2 and Qwen split texts in their own way, whatever tokenizer.json says.

// plainClass is the class that takes tokenizer.json as it is.
const plainClass = "PreTrainedTokenizerFast"

// AutoTokenizer takes fixedClass for models of the family fixedFamily whatever tokenizer_config.json says, as of
// transformers 5.24; fixedPattern is what its tokenizer.json has.
const (
	fixedFamily  = stages.Qwen2
	fixedClass   = "Qwen2Tokenizer"
	fixedPattern = `|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|`
)

// tokenizerFiles adds to the files of an export what other programs need to give the model the ids that it was trained
// on, and says where they will not.
func tokenizerFiles(family string, files map[string][]byte, from rundir.Files) (warnings []string, err error) {
	file := files[rundir.TokensFile]
	if file == nil {
		return nil, nil
	}
	tok, err := tokenizer.Unmarshal(file)
	if err != nil {
		return nil, nil // another program may know what it is: the file is written as it came
	}
	if files[rundir.TokenizerConfigFile] == nil {
		about := map[string]any{"tokenizer_class": plainClass, "clean_up_tokenization_spaces": false}
		talk, _ := rundir.ReadTalk(from, tok) // what it can't read, another program may
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
	if family == fixedFamily && !bytes.Contains(file, []byte(fixedPattern)) {
		warnings = append(warnings,
			fmt.Sprintf("transformers' AutoTokenizer takes %s for models of the family %s, which splits texts otherwise than this tokenizer and may have an end token that the model has no row for: load it with %s.from_pretrained, or use the family qwen3",
				fixedClass, family, plainClass))
	}
	return warnings, nil
}

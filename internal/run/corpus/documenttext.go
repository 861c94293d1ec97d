package corpus

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/troupe-ml/troupe/config"
)

// AppendRowText appends the texts of a row of documents, a line each: what a tokenizer sees of it, without a chat template.
func AppendRowText(dst, line []byte) ([]byte, error) {
	m, err := readRow(line, nil)
	if err != nil {
		return dst, err
	}
	found := false
	for _, key := range config.DocumentKeys {
		var v any
		if m.has(key) && json.Unmarshal(m.value(key), &v) == nil {
			found, dst = true, appendTexts(dst, v)
		}
	}
	if !found {
		return dst, m.unknown()
	}
	return dst, nil
}

// appendTexts appends the texts in a value. Those that name a role are not among them.
func appendTexts(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		dst = append(append(dst, v...), '\n')
	case []any:
		for _, one := range v {
			dst = appendTexts(dst, one)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key != "role" && key != "from" && key != "name" && key != "type" {
				dst = appendTexts(dst, v[key])
			}
		}
	}
	return dst
}

package stages

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// ownType is the model_type of a config.json for families other than language models. Their sizes
// are in Troupe's own format, and no other program knows these models.
const ownType = "troupe"

// hfOwn is such a config.json.
type hfOwn struct {
	ModelType  string `json:"model_type"`
	TorchDType string `json:"torch_dtype"`
	Troupe     Config `json:"troupe"`
}

func (c Config) hfOwn() ([]byte, error) {
	b, err := json.MarshalIndent(hfOwn{ModelType: ownType, TorchDType: "float32", Troupe: c}, "", "  ")
	return append(b, '\n'), err
}

// isOwn reports whether a config.json is of this kind.
func isOwn(members []member) bool {
	for _, m := range members {
		if m.key == "model_type" {
			return same(m.value, `"`+ownType+`"`)
		}
	}
	return false
}

func parseOwn(data []byte) (Config, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var h hfOwn
	if err := dec.Decode(&h); err != nil {
		return Config{}, fmt.Errorf("model_type %q: %s", ownType, strictjson.Quote(err.Error()))
	}
	if h.Troupe.Language() {
		return Config{}, fmt.Errorf("model_type %q: the family %q has its own model_type", ownType, h.Troupe.Family)
	}
	return h.Troupe, nil
}

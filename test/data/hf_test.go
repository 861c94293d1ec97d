package data

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

// vector is a model of testdata/hf/vectors.json, which forward.py beside it writes:
//
//	cd testdata/hf && python3 forward.py > vectors.json
type vector struct {
	Config  string   // the text of config.json
	Odd     []string // keys, or a tensor, that a reader without them must honour or refuse
	Tokens  []uint16
	Loss    float64
	Tensors []vectorTensor
}

type vectorTensor struct {
	name          string
	shape         []int
	scale, offset float64
}

func (v *vectorTensor) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&v.name, &v.shape, &v.scale, &v.offset})
}

// values are the tensor's elements, by forward.py's formula.
func (v *vectorTensor) values() []float32 {
	n := 1
	for _, s := range v.shape {
		n *= s
	}
	base := uint32(2166136261)
	for _, b := range []byte(v.name) {
		base = (base ^ uint32(b)) * 16777619
	}
	values := make([]float32, n)
	for i := range values {
		h := base ^ uint32(i)*0x9E3779B1
		h = (h ^ h>>16) * 0x7FEB352D
		h = (h ^ h>>15) * 0x846CA68B
		h ^= h >> 16
		values[i] = float32(v.offset + v.scale*(float64(h%4097)-2048)/2048)
	}
	return values
}

// TestForwardIndependently: models with keys drawn at random give the loss that an
// independent forward pass computes for them, or are refused by the name of a key; none is
// read as another model.
func TestForwardIndependently(t *testing.T) {
	var vectors []vector
	if err := json.Unmarshal([]byte(testrun.Read(t, "testdata/hf/vectors.json")), &vectors); err != nil {
		t.Fatal(err)
	}
	agree, honoured, refused := 0, make(map[string]int), make(map[string]int) // by the keys that are odd
	for i, v := range vectors {
		dir := t.TempDir()
		var tensors []safetensors.Tensor
		for _, one := range v.Tensors {
			tensors = append(tensors, safetensors.F32(one.name, one.shape, one.values()))
		}
		var file strings.Builder
		if err := safetensors.Write(&file, nil, tensors); err != nil {
			t.Fatal(err)
		}
		testrun.Write(t, filepath.Join(dir, "config.json"), v.Config)
		testrun.Write(t, filepath.Join(dir, "model.safetensors"), file.String())
		var ids []byte
		for _, id := range v.Tokens {
			ids = binary.LittleEndian.AppendUint16(ids, id)
		}
		data := testrun.Write(t, filepath.Join(dir, "ids.bin"), string(ids))

		got, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: dir}, Data: []string{data},
			Format: "uint16"})
		switch setup := new(troupe.SetupError); {
		case err == nil && math.Abs(got.Loss-v.Loss) <= 1e-6:
			agree++
			honoured[strings.Join(v.Odd, " ")]++
		case err == nil:
			t.Errorf("model %d: the loss is %.9f, it should be %.9f\n%s\nodd: %q", i, got.Loss, v.Loss, v.Config, v.Odd)
		case errors.As(err, &setup) && slices.ContainsFunc(v.Odd, func(key string) bool { return strings.Contains(err.Error(), key) }):
			refused[strings.Join(v.Odd, " ")]++
			if v.Odd[0] != "lm_head.weight" && !errors.Is(err, stages.ErrModel) {
				t.Errorf("model %d: %v is not of the model", i, err)
			}
		default:
			t.Errorf("model %d: %v\n%s\nodd: %q", i, err, v.Config, v.Odd)
		}
	}
	if agree < 30 {
		t.Errorf("%d models agree: too few to tell", agree)
	}
	for _, key := range []string{"activation_function", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "lm_head.weight",
		"hidden_act", "partial_rotary_factor"} {
		if refused[key] == 0 {
			t.Errorf("no model is refused for %s alone", key)
		}
	}
	for _, key := range []string{"attention_bias", "mlp_bias", "head_dim", "rope_scaling", "rope_parameters"} {
		if honoured[key] == 0 {
			t.Errorf("no model agrees that has an unusual %s alone", key)
		}
	}
	t.Logf("%d models agree, %d are refused for %v", agree, len(vectors)-agree, refused)
}

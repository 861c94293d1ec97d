package stages

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
)

// ropeVector is a line of testdata/rope/vectors.jsonl, which vectors.py beside it explains.
type ropeVector struct {
	Settings  json.RawMessage `json:"rope_parameters"`
	HeadDim   int             `json:"head_dim"`
	Positions int             `json:"max_position_embeddings"`
	Length    int             `json:"length"`
	Angles    []float64       `json:"angles"`
	Factor    float64         `json:"factor"`
}

func ropeVectors(t testing.TB) (all []ropeVector) {
	t.Helper()
	f, err := os.Open("testdata/rope/vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v ropeVector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// parsed reads settings as a family does of which a part of the channels may rotate.
func parsed(settings []byte, positions int) (RopeScaling, float64, error) {
	var r reading
	r.rope.hasPartial, r.theta.value = true, 10000
	if err := r.rope.read(&r)("rope_parameters", settings); err != nil {
		return RopeScaling{}, 0, err
	}
	s, err := r.rope.scaling(positions)
	return s, r.theta.value, err
}

// TestRotationsAgree: the angles of every type are those of transformers' functions, also after the
// settings were written and read again.
func TestRotationsAgree(t *testing.T) {
	seen := make(map[string]bool)
	worst := 0.0
	for _, v := range ropeVectors(t) {
		s, theta, err := parsed(v.Settings, v.Positions)
		if err == nil {
			err = s.check(theta, v.HeadDim)
		}
		if err != nil {
			t.Errorf("%s: %v", v.Settings, err)
			continue
		}
		seen[s.Type] = true
		r := rotation(s, theta, v.HeadDim, v.Length)
		if r.Pairs() != len(v.Angles) || math.Abs(r.Scale()-v.Factor) > 1e-14*v.Factor {
			t.Errorf("%s: %d pairs, factor %g, want %d and %g", v.Settings, r.Pairs(), r.Scale(), len(v.Angles), v.Factor)
			continue
		}
		for i, want := range v.Angles {
			off := math.Abs(r.Frequency(i) - want)
			if worst = max(worst, off/max(want, 1e-300)); off > 1e-12*want {
				t.Errorf("%s: pair %d of %d channels rotates by %.15g, want %.15g", v.Settings, i, v.HeadDim, r.Frequency(i), want)
			}
		}
		if h := s.written(); h != nil {
			text, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := parsed(text, s.hfPositions(v.Positions))
			if err != nil || rotation(again, theta, v.HeadDim, v.Length).Key() != r.Key() {
				t.Errorf("%s was written as %s, which is %+v, %v", v.Settings, text, again, err)
			}
		}
		stored, err := json.Marshal(s)
		var loaded RopeScaling
		if err != nil || json.Unmarshal(stored, &loaded) != nil || rotation(loaded, theta, v.HeadDim, v.Length).Key() != r.Key() {
			t.Errorf("%s was stored as %s, %v", v.Settings, stored, err)
		}
	}
	t.Logf("largest relative difference %.1e", worst)
	for _, kind := range ropeTypes[1:] {
		if !seen[kind] {
			t.Errorf("no vector for %s", kind)
		}
	}
}

// TestRotationsAreKept: a layer makes a rotation again only where it depends on the positions.
func TestRotationsAreKept(t *testing.T) {
	longrope := RopeScaling{Type: ropeLongrope, Factor: 4, Original: 8, Short: []float64{1, 1}, Long: []float64{2, 3}}
	for _, c := range []struct {
		scaling RopeScaling
		want    int // rotations for 1 to 16 positions
	}{
		{RopeScaling{}, 1},
		{RopeScaling{Type: ropeYarn, Factor: 4, Original: 8}, 1},
		{longrope, 2},
		{RopeScaling{Type: ropeDynamic, Factor: 2, Original: 8}, 9},
	} {
		if err := c.scaling.check(1e4, 4); err != nil {
			t.Fatal(err)
		}
		var kept rotations
		made := make(map[any]bool)
		for positions := 1; positions <= 16; positions++ {
			r := kept.of(&ropeSpec{theta: 1e4, scaling: c.scaling}, 4, positions)
			if want := rotation(c.scaling, 1e4, 4, positions); r.Key() != want.Key() {
				t.Errorf("%q at %d positions: another rotation than that without a cache", c.scaling.Type, positions)
			}
			made[r] = true
		}
		if len(made) != c.want {
			t.Errorf("%q: %d rotations for 16 lengths, want %d", c.scaling.Type, len(made), c.want)
		}
	}
}

// TestRopeScalingRefuses names what is wrong, its value and its limit.
func TestRopeScalingRefuses(t *testing.T) {
	long := func(list string) string {
		return `{"rope_type":"longrope","original_max_position_embeddings":8,"short_factor":[1,1,1,1],"long_factor":` + list + `}`
	}
	const llama = `{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1,"original_max_position_embeddings":8}`
	for settings, want := range map[string]string{
		`{"rope_type":"ntk"}`:                 `rope_type is "ntk"`,
		`{"rope_type":"linear","factor":1e7}`: `factor is 1e7: it must be a number from 1 to 1e+06`,
		`{"rope_type":"dynamic"}`:             `"dynamic", which also needs factor`,
		`{"rope_type":"dynamic","factor":2,"original_max_position_embeddings":8}`: `original_max_position_embeddings is set`,
		`{"rope_type":"yarn","factor":4,"attention_factor":0}`:                    `attention_factor is 0: it must be a number from 1e-06`,
		`{"rope_type":"yarn","factor":4,"attention_factor":-1}`:                   `attention_factor is -1`,
		`{"rope_type":"yarn","factor":4,"beta_fast":1,"beta_slow":2}`:             `beta_fast is 1 and beta_slow is 2`,
		`{"rope_type":"yarn","factor":4,"truncate":1}`:                            `truncate is 1: it must be true or false`,
		`{"rope_type":"yarn","factor":4,"low_freq_factor":1}`:                     `low_freq_factor is set, but rope_type "yarn"`,
		`{"rope_type":"yarn","factor":4,"rope_theta":1}`:                          `rope_theta is 1: type "yarn" needs more than 1`,
		`{"rope_type":"yarn","factor":4,"partial_rotary_factor":0.9}`:             `7 channels of a head rotate: type "yarn" needs an even number`,
		`{"rope_type":"longrope","short_factor":[1,1,1,1]}`:                       `"longrope", which also needs long_factor`,
		long(`[1,1,1]`):     `long_factor has 3 factors, but 4 pairs`,
		long(`[1,1,1,0]`):   `long_factor[3] is 0: it must be a number from 0.001`,
		long(`[1,1,1,"x"]`): `long_factor is [1,1,1,"x"]: it must be a list`,
		long(`[]`):          `long_factor is []: it must be a list`,
		strings.Replace(long(`[1,1,1,1]`), `:8,`, `:1,`, 1):               `original_max_position_embeddings is 1: it must be from 2`,
		`{"rope_type":"default","truncate":false}`:                        `truncate is set, but rope_type "default"`,
		`{"partial_rotary_factor":0}`:                                     `partial_rotary_factor is 0: it must be a number`,
		`{"partial_rotary_factor":1.5}`:                                   `partial_rotary_factor is 1.5`,
		`{"partial_rotary_factor":0.1}`:                                   `0 of a head's 8 channels rotate`,
		`{"rope_type":"dynamic","factor":2,"partial_rotary_factor":0.25}`: `2 channels of a head rotate: type "dynamic" needs at least 3`,
		`{"rope_type":"proportional","factor":0.5}`:                       `factor is 0.5`,
		llama: `low_freq_factor is 4 and high_freq_factor is 1`,
	} {
		s, theta, err := parsed([]byte(settings), 64)
		if err == nil {
			err = s.check(theta, 8)
			if err != nil && !errors.Is(err, ErrModel) {
				t.Errorf("%s: %v is not ErrModel", settings, err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %s", settings, err, want)
		}
	}
	for _, s := range []RopeScaling{{Type: "default"}, {Factor: 2}, {Type: ropeYarn, Factor: math.NaN(), Original: 8},
		{Type: ropeLongrope, Factor: 2, Original: 8, Short: []float64{1, 1, 1, math.Inf(1)}, Long: []float64{1, 1, 1, 1}},
		{Type: ropeLinear, Factor: 2, Original: -1}, {Partial: math.NaN()}} {
		if err := s.check(1e4, 8); !errors.Is(err, ErrModel) {
			t.Errorf("%+v passes: %v", s, err)
		}
	}
}

// FuzzRopeScaling: any settings are refused, or give finite angles at every length.
func FuzzRopeScaling(f *testing.F) {
	for _, v := range ropeVectors(f) {
		f.Add([]byte(v.Settings), v.HeadDim, v.Positions, v.Length)
	}
	f.Add([]byte(`{"type":"su","short_factor":[1],"long_factor":[2],"factor":null}`), 2, 16, 17)
	f.Fuzz(func(t *testing.T, settings []byte, width, positions, length int) {
		if width < 1 || width > 4096 || positions < 1 || positions > MaxContext || length < 1 || length > MaxContext {
			return
		}
		s, theta, err := parsed(settings, positions)
		if err != nil || s.check(theta, width) != nil {
			return
		}
		r := rotation(s, theta, width, length)
		if 2*r.Pairs() > width || r.Pairs() < 1 || !(r.Scale() > 0) || math.IsInf(r.Scale(), 0) {
			t.Fatalf("%s: %d pairs of %d channels, scale %g", settings, r.Pairs(), width, r.Scale())
		}
		for i := range r.Pairs() {
			if a := r.Frequency(i); !(a >= 0) || math.IsInf(a, 0) {
				t.Fatalf("%s: pair %d rotates by %g", settings, i, a)
			}
		}
		if h := s.written(); h != nil {
			text, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			if again, _, err := parsed(text, s.hfPositions(positions)); err != nil || rotation(again, theta, width, length).Key() != r.Key() {
				t.Fatalf("%s was written as %s, which is %+v, %v", settings, text, again, err)
			}
		}
	})
}

// TestDynamicPositions: "dynamic" is for texts beyond max_position_embeddings, which stays in files.
func TestDynamicPositions(t *testing.T) {
	const sizes = `{"model_type":"llama","vocab_size":9,"hidden_size":16,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,` +
		`"max_position_embeddings":24,"rope_scaling":`
	for scaling, want := range map[string]int{
		`{"rope_type":"dynamic","factor":2.5}}`: 60,
		`{"rope_type":"dynamic","factor":1}}`:   24,
		`{"rope_type":"dynamic","factor":1e6}}`: MaxContext,
		`{"rope_type":"linear","factor":2.5}}`:  24,
	} {
		c, err := ParseHF([]byte(sizes + scaling))
		if err != nil || c.Context != 24 || c.Positions() != want {
			t.Errorf("%s: a context of %d, %d positions, %v; want 24 and %d", scaling, c.Context, c.Positions(), err, want)
			continue
		}
		c.Context = want // a run with all of them
		text, err := c.HF()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseHF(text); err != nil || again.Context != 24 || again.Positions() != want {
			t.Errorf("%s: written as %s, and read with a context of %d and %d positions, %v", scaling, text, again.Context, again.Positions(), err)
		}
	}
}

package checkpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// sampleManifest is the manifest of a small checkpoint.
func sampleManifest(t testing.TB) []byte {
	t.Helper()
	text, err := encodeManifest(100, []ManifestFile{
		{Name: "model.safetensors", Bytes: 1184, SHA256: hexHash([]byte("weights"))},
		{Name: "config.json", Bytes: 3, SHA256: hexHash([]byte("{}\n"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestManifestRoundTrip(t *testing.T) {
	m, err := decodeManifest(sampleManifest(t))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{m.Files[0].Name, m.Files[1].Name}
	if m.Step != 100 || !slices.Equal(names, []string{"config.json", "model.safetensors"}) || m.Files[1].Bytes != 1184 {
		t.Errorf("%+v", m)
	}
}

func TestEveryBitOfTheManifestCounts(t *testing.T) {
	text := sampleManifest(t)
	for bit := range 8 * len(text) {
		text[bit/8] ^= 1 << (bit % 8)
		if m, err := decodeManifest(text); err == nil {
			t.Errorf("bit %d of byte %d turned, and it reads as %+v", bit%8, bit/8, m)
		}
		text[bit/8] ^= 1 << (bit % 8)
	}
}

func TestManifestRefuses(t *testing.T) {
	sample := string(sampleManifest(t))
	for _, c := range []struct {
		name, text, want string
	}{
		{"nothing", "", "unexpected end"},
		{"another version", strings.Replace(sample, `"format_version": 1`, `"format_version": 7`, 1), "version 7, but this program knows only 1"},
		{"no version", `{}`, "version 0"},
		{"negative step", strings.Replace(sample, `"step": 100`, `"step": -1`, 1), "the step is -1"},
		{"a path", strings.Replace(sample, `config.json`, `../config.json`, 1), `"../config.json" is not allowed`},
		{"a path, escaped", strings.Replace(sample, `config.json`, `a\u002fb`, 1), `"a/b" is not allowed`},
		{"itself", strings.Replace(sample, `model.safetensors`, `manifest.json`, 1), "the manifest lists itself"},
		{"a name twice", strings.Replace(sample, `model.safetensors`, `config.json`, 1), "the manifest lists config.json twice"},
		{"negative size", strings.Replace(sample, `1184`, `-1`, 1), "the manifest gives model.safetensors the impossible size -1"},
		{"an unknown key", strings.Replace(sample, `"step"`, `"extra": 1, "step"`, 1), "does not match its own checksum"},
		{"another spelling", strings.Replace(sample, `"step"`, `"Step"`, 1), "does not match its own checksum"},
		{"another order", strings.NewReplacer("config.json", "model.safetensors", "model.safetensors", "config.json").Replace(sample),
			"does not match its own checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := decodeManifest([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
	if _, err := decodeManifest([]byte(`{"format_version":9}`)); !errors.Is(err, ErrVersion) {
		t.Errorf("a newer format: %v", err)
	}
}

func TestIndexRefuses(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
	}{
		{"no map", `{"metadata":{}}`, "weight_map is missing"},
		{"an empty map", `{"weight_map":{}}`, "weight_map is missing or empty"},
		{"a list", `[]`, "expected an object"},
		{"a map of numbers", `{"weight_map":{"a":1}}`, `"a": expected a string`},
		{"a tensor twice", `{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`, `"a" appears twice`},
		{"two maps", `{"weight_map":{},"weight_map":{}}`, "appears twice"},
		{"a path", `{"weight_map":{"a":"d/x.safetensors"}}`, "not allowed"},
		{"a path to the parent", `{"weight_map":{"a":".."}}`, "not allowed"},
		{"an absolute path", `{"weight_map":{"a":"/x.safetensors"}}`, "not allowed"},
		{"another folder on Windows", `{"weight_map":{"a":"C:\\x.safetensors"}}`, "not allowed"},
		{"an empty name", `{"weight_map":{"a":""}}`, "not allowed"},
		{"pickled weights", `{"weight_map":{"a":"pytorch_model-1-of-2.bin"}}`, `not a .safetensors file`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := decodeIndex([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// FuzzManifest: what is accepted is exactly what encodeManifest writes.
func FuzzManifest(f *testing.F) {
	f.Add(sampleManifest(f))
	f.Add([]byte(`{"format_version":1,"step":100,"files":[{"name":"../x","bytes":1,"sha256":""}],"sha256":""}`))
	f.Add([]byte(`{"format_version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decodeManifest(text)
		if err != nil {
			return
		}
		again, err := encodeManifest(m.Step, m.Files)
		if err != nil || string(again) != string(text) {
			t.Errorf("%q is accepted and written as %q, %v", text, again, err)
		}
	})
}

// FuzzIndex: what is accepted has safe names only, and survives a round trip.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors","\u0061":"y.safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		shardOf, err := decodeIndex(text)
		if err != nil {
			return
		}
		for _, shard := range shardOf {
			if shard == "" || shard[0] == '.' || strings.ContainsAny(shard, "/\\:\x00") {
				t.Errorf("the shard %q is accepted", shard)
			}
		}
		again, err := encodeIndex(shardOf, 0)
		if err != nil {
			t.Fatal(err)
		}
		second, err := decodeIndex(again)
		if err != nil || len(second) != len(shardOf) {
			t.Errorf("after a round trip %v, %v, want %v", second, err, shardOf)
		}
	})
}

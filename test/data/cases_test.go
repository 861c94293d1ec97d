package data

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// The models of testdata/cases are small and random, as transformers saved them. The right values are those of
// transformers in float64: a conversation is rendered, the whole text is encoded once, and spans are laid over
// its tokens by their offsets.
const (
	chatML   = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{'<|im_start|>assistant\n'}}{% endif %}"
	colon    = "{% for m in messages %}{% if m['role']=='user' %}{{'USER: ' + m['content'] + ' '}}{% elif m['role']=='system' %}{{m['content'] + '\n\n'}}{% else %}{{'ASSISTANT: ' + m['content'] + '<|im_end|>'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{'ASSISTANT:'}}{% endif %}"
	mistral  = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}"
	llama2   = "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + ' ' + eos_token}}{% endif %}{% endfor %}"
	thinking = `{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set body = m.content -%}{%- set why = '' -%}
{%- if '</think>' in body -%}
{%- set why = body.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
{%- set body = body.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{%- if loop.last or why -%}
{{- '<|im_start|>assistant\n<think>\n' + why.strip('\n') + '\n</think>\n\n' + body.lstrip('\n') -}}
{%- else -%}
{{- '<|im_start|>assistant\n' + body -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- else -%}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
`
)

// What the models are given, and parts of their tokenizers.
const (
	twoOfTurns = `{"messages":[{"role":"user","content":"What waits?"},{"role":"assistant","content":"the stage waits"}]}
{"messages":[{"role":"user","content":"How many?"},{"role":"assistant","content":"a run of four"}]}
`
	twoTalks = `{"messages": [{"role": "user", "content": "What is a bubble?"}, {"role": "assistant", "content": "A stage that waits."}]}
{"messages": [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": "yes and no"}, {"role": "user", "content": "And the other stage?"}, {"role": "assistant", "content": "It waits too, in a run of four."}]}
`
	oneTalk = `{"messages": [{"role": "user", "content": "What is a bubble?"}, {"role": "assistant", "content": "A stage that waits."}]}` +
		"\n"
	shortTalk = `{"messages": [{"role": "user", "content": "What is a stage?"}, {"role": "assistant", "content": "An actor."}]}` + "\n"

	beginAndEnd  = `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],"pair":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<s>","type_id":1}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}}}`
	prependSpace = `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`
)

// A caseModel is a directory as transformers saves one.
type caseModel struct {
	weights, tokenizer string            // files of testdata/cases
	parts              map[string]string // of tokenizer.json, other ones
	template           string
	names              string // members of tokenizer_config.json that name tokens
	positions, end     int
	more               map[string]string // further files
}

func byteLevel(template string, positions int) caseModel {
	return caseModel{weights: "chatml", tokenizer: "bytelevel", template: template, positions: positions, end: 2,
		names: `, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"`}
}

func metaspace(weights, template string) caseModel {
	return caseModel{weights: weights, tokenizer: "metaspace", template: template, positions: 128, end: 2,
		names: `, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"`}
}

func (m caseModel) write(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	put := func(name, text string) { testrun.Write(t, filepath.Join(dir, name), text) }
	put("model.safetensors", testrun.Read(t, "testdata/cases/"+m.weights+".safetensors"))
	var parts map[string]json.RawMessage
	if err := json.Unmarshal([]byte(testrun.Read(t, "testdata/cases/"+m.tokenizer+".json")), &parts); err != nil {
		t.Fatal(err)
	}
	for name, part := range m.parts {
		parts[name] = json.RawMessage(part)
	}
	config := map[string]any{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "attention_bias": false, "mlp_bias": false,
		"bos_token_id": 1, "eos_token_id": m.end,
		"dtype": "float32", "hidden_act": "silu", "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
		"rope_parameters":     map[string]any{"rope_theta": 10000.0, "rope_type": "default"},
		"tie_word_embeddings": false, "max_position_embeddings": m.positions, "head_dim": 8, "hidden_size": 32, "intermediate_size": 64,
		"num_hidden_layers": 2, "vocab_size": 800}
	if m.tokenizer == "bytelevel" {
		config["head_dim"], config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"], config["vocab_size"],
			config["pad_token_id"] = 12, 48, 80, 3, 420, 0
	}
	for name, value := range map[string]any{"tokenizer.json": parts, "config.json": config,
		"generation_config.json": map[string]any{"_from_model_config": true, "bos_token_id": 1, "eos_token_id": m.end}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		put(name, string(text))
	}
	put("tokenizer_config.json",
		`{"backend": "tokenizers", "tokenizer_class": "TokenizersBackend", "model_max_length": 1000000000000000019884624838656`+m.names+"}")
	put("chat_template.jinja", m.template)
	for name, text := range m.more {
		put(name, text)
	}
	return dir
}

// TestCases: inputs that trainers are known to go wrong on have the targets and the losses that transformers has.
func TestCases(t *testing.T) {
	legacy := metaspace("llama2_legacy", llama2)
	legacy.parts = map[string]string{"normalizer": prependSpace, "pre_tokenizer": "null"}
	both := metaspace("mistral", mistral)
	both.parts = map[string]string{"post_processor": beginAndEnd}
	namesElsewhere := metaspace("mistral", mistral)
	namesElsewhere.names, namesElsewhere.more = "",
		map[string]string{"special_tokens_map.json": `{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}`}
	otherEnd := byteLevel(chatML, 64)
	otherEnd.end, otherEnd.names = 0, `, "bos_token": "<|im_start|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"`
	chat := byteLevel(chatML, 512)
	long := func(n int) string {
		return `{"messages": [{"role": "user", "content": "` + strings.Repeat("w ", n) + `"}, {"role": "assistant", "content": "` +
			strings.Repeat("short answer ", 3) + "\"}]}\n"
	}
	for _, tt := range []struct {
		name    string
		model   caseModel
		rows    string
		context int
		targets int64
		loss    float64
	}{
		{"bos_lost", both, `{"prompt":"What is a bubble?","completion":"A stage"}` + "\n", 0, 3, 7.797784},
		{"bpb", byteLevel(chatML, 64), strings.Repeat(`{"text": "a b c d e f"}`+"\n", 8), 63, 55, 6.700394},
		{"eval_cut", chat, long(2) + long(30) + long(60) + long(300), 0, 104, 6.788830},
		{"jl_null/nullfields", chat,
			`{"messages":[{"role":"user","content":"q","name":null},{"role":"assistant","content":"a","tool_calls":null}]}` + "\n", 0, 2, 7.366229},
		{"jl_null/bom", chat, "\ufeff{\"text\":\"hello there\"}\n{\"text\":\"more words\"}\n", 0, 14, 5.945426},
		{"jl_null/tools", chat,
			`{"messages":[{"role":"user","content":"weather"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"w","arguments":{"city":"Oslo"}}}]},{"role":"tool","content":"4 degrees"},{"role":"assistant","content":"It is 4."}]}` + "\n", 0, 8, 5.992860},
		{"jl_null/weight", chat,
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"wrong words","weight":0},{"role":"user","content":"r"},{"role":"assistant","content":"right words","weight":1}]}` + "\n", 0, 8, 6.188829},
		{"pieces_colon", byteLevel(colon, 512), twoOfTurns, 0, 15, 6.238556},
		{"pieces_sp/first_llama2", metaspace("llama2", llama2), twoTalks, 0, 28, 7.276982},
		{"pieces_sp/legacy_llama2", legacy, twoTalks, 0, 28, 6.909084},
		{"special_in_text/pc", chat,
			`{"prompt": "<|im_start|>user\nWhat is a stage?<|im_end|>\n<|im_start|>assistant\n", "completion": "An actor.<|im_end|>\n"}` + "\n", 500,
			9, 6.332705},
		{"special_in_text/text", chat, `{"text": "<|im_start|>user\nWhat is a stage?<|im_end|>\n<|im_start|>assistant\nAn actor.<|im_end|>\n"}` +
			"\n", 500, 31, 6.462805},
		{"special_map", namesElsewhere, oneTalk, 0, 6, 6.715564},
		{"think/think", byteLevel(thinking, 512),
			`{"messages":[{"role":"user","content":"What waits?"},{"role":"assistant","content":"<think>\nA stage may wait.\n</think>\n\nThe stage."}]}` + "\n", 500, 32, 6.234572},
		{"think/think2", byteLevel(thinking, 512), `{"messages":[{"role":"user","content":"What waits?"},{"role":"assistant","content":"<think>\nA stage may wait.\n</think>\n\nThe stage."}]}
{"messages":[{"role":"user","content":"How many?"},{"role":"assistant","content":"<think>\nCount them.\n</think>\n\nFour."}]}
`, 500, 59, 6.243891},
		{"turn_end/msgs", otherEnd, shortTalk, 0, 7, 6.291113},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: tt.model.write(t)},
				Data: []string{testrun.Write(t, filepath.Join(t.TempDir(), "rows.jsonl"), tt.rows)}, Format: "documents", Context: tt.context}
			got, err := troupe.Evaluate(t.Context(), o)
			if err != nil || got.Tokens != tt.targets || !(math.Abs(got.Loss-tt.loss) < 2e-6) {
				t.Fatalf("%d targets with the loss %.6f, want %d with %.6f, %v", got.Tokens, got.Loss, tt.targets, tt.loss, err)
			}
			switch tt.name {
			case "bpb":
				if want := 55 * 6.700394 / math.Ln2 / 87; !(math.Abs(got.BitsPerByte-want) < 1e-5) {
					t.Errorf("%.6f bits per byte, want %.6f", got.BitsPerByte, want)
				}
			case "eval_cut":
				o.Context = 60
				cut, err := troupe.Evaluate(t.Context(), o)
				want := troupe.DocumentCounts{Total: 4, Cut: 1, Dropped: 2, TargetsLeftOut: 63, Tokens: 106, Learned: 41, Longest: 343}
				if err != nil || cut.Documents == nil || *cut.Documents != want || cut.Tokens != 41 || len(cut.Warnings) != 2 {
					t.Errorf("a context of 60: %+v with %q, want %+v, %v", cut.Documents, cut.Warnings, want, err)
				}
			case "turn_end/msgs":
				if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], `end with "<|im_end|>" (id 2)`) {
					t.Errorf("warnings %q", got.Warnings)
				}
			}
		})
	}
}

// TestCaseOfParts: contents in parts, which a template for texts alone can't write, are refused by row.
func TestCaseOfParts(t *testing.T) {
	rows := testrun.Write(t, filepath.Join(t.TempDir(), "parts.jsonl"),
		`{"messages":[{"role":"user","content":[{"type":"text","text":"parts"}]},{"role":"assistant","content":[{"type":"text","text":"reply"}]}]}`+"\n")
	_, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: byteLevel(chatML, 512).write(t)},
		Data: []string{rows}, Format: "documents"})
	if err == nil || !strings.Contains(err.Error(), "parts.jsonl, row 1") || !strings.Contains(err.Error(), `(not "list") to str`) {
		t.Errorf("%v", err)
	}
}

// TestCaseOfLongPrompt: a run with a short context, its export and the model before it go on as transformers does.
func TestCaseOfLongPrompt(t *testing.T) {
	from := byteLevel(chatML, 64).write(t)
	out := filepath.Join(t.TempDir(), "out")
	testrun.Finish(t, testrun.Start(t, testrun.FromConfig(t, from, "model.context=16", "run.out="+out, "run.steps=1", "run.eval_every=0",
		"optimizer.lr=1e-9")))
	for _, model := range []string{from, out, exported(t, out, "float32", 0)} {
		text, _ := testrun.Generate(t, troupe.GenerateOptions{ModelOptions: troupe.ModelOptions{From: model},
			TextOptions: troupe.TextOptions{Prompt: "Troupe trains neural networks in pipeline stages, in Go. Every stage is an actor", Tokens: 8,
				IgnoreEnd: true}})
		if text != "7777777 f" {
			t.Errorf("%s: %q", model, text)
		}
	}
}

// TestCaseOfPlainText: names of special tokens in a text are tokens unless they are asked to be text.
func TestCaseOfPlainText(t *testing.T) {
	from := byteLevel(chatML, 512).write(t)
	file := testrun.Write(t, filepath.Join(t.TempDir(), "plain.txt"), "One tale.<|endoftext|>Another tale.<|endoftext|>")
	for special, want := range map[string]int64{"tokens": 18, "text": 38} {
		got, err := troupe.Evaluate(t.Context(), troupe.EvalOptions{ModelOptions: troupe.ModelOptions{From: from}, Data: []string{file},
			Format: "text", SpecialTokens: special})
		if err != nil || got.Tokens != want-1 {
			t.Errorf("%s: %d targets, want %d, %v", special, got.Tokens, want-1, err)
		}
	}
}

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/infer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a model that says the same to everything: pieces, one after the other.
type fake struct {
	pieces []string
	err    error
	wait   chan struct{} // if not nil, each text waits for it before its last piece

	mu    sync.Mutex
	asked infer.TextOptions // the last ones
}

func (f *fake) Generate(ctx context.Context, o infer.TextOptions, emit func([]byte) error) error {
	f.mu.Lock()
	f.asked = o
	f.mu.Unlock()
	for i, p := range f.pieces {
		if f.wait != nil && i == len(f.pieces)-1 {
			select {
			case <-f.wait:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := emit([]byte(p)); err != nil {
			return err
		}
	}
	*o.Report = infer.GenerateReport{PromptTokens: 3, Tokens: len(f.pieces), Finish: infer.FinishStop}
	return f.err
}

func (f *fake) ToolMarker(json.RawMessage) string { return "<tool_call>" }
func (f *fake) Stats() infer.BatchStats           { return infer.BatchStats{Running: 1} }

func (f *fake) last() infer.TextOptions {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func newServer(t *testing.T, m Model, o Options) *Server {
	t.Helper()
	if o.Name == "" {
		o.Name = "m"
	}
	s, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends a request, and returns the status and the body.
func ask(t *testing.T, s http.Handler, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const (
	chats = "/v1/chat/completions"
	texts = "/v1/completions"
	hello = `"model": "m", "messages": [{"role": "user", "content": "hello"}]`
	once  = `"model": "m", "prompt": "once"`
	tools = `, "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]`
)

// TestAnswers: the answers have the form of the API.
func TestAnswers(t *testing.T) {
	call := []string{"I look", ".\n<tool_", "call>{\"name\":\"weather\",\"arg", "uments\":{\"city\":\"Rome\"}}</tool_call>"}
	for _, c := range []struct {
		path, body string
		pieces     []string
		want       []string
	}{
		{chats, hello, []string{"a", "b"}, []string{`"object":"chat.completion"`, `"message":{"role":"assistant","content":"ab"}`,
			`"finish_reason":"stop"`, `"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}`, `"id":"chatcmpl-`}},
		{texts, once, []string{"a", "b"}, []string{`"object":"text_completion"`, `"text":"ab"`, `"id":"cmpl-`}},
		{texts, once, nil, []string{`"text":""`}},
		{chats, hello, nil, []string{`"content":""`}},
		{chats, hello + tools, call, []string{`"content":"I look."`, `"finish_reason":"tool_calls"`,
			`"type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}`}},
		{chats, hello + tools, call[3:], []string{`"content":"uments`, `"finish_reason":"stop"`}},
		{chats, hello + tools, []string{"<tool_call>{\"name\":\"weather\",\"arguments\":{}}"},
			[]string{`"content":null,"tool_calls":[{"id":"call_`}},
		{chats, hello + tools + `, "tool_choice": "none"`, call, []string{`tool_call\u003e`, `"finish_reason":"stop"`}},
		{chats, hello + `, "stream": true, "stream_options": {"include_usage": true}`, []string{"a", "b"}, []string{
			`"object":"chat.completion.chunk"`, `"delta":{"role":"assistant","content":""}`, `"delta":{"content":"a"}`, `"delta":{"content":"b"}`,
			`"delta":{},"logprobs":null,"finish_reason":"stop"`, `"choices":[],"usage":{"prompt_tokens":3`, "data: [DONE]\n\n"}},
		{texts, once + `, "stream": true`, []string{"a"}, []string{`"text":"a","logprobs":null,"finish_reason":null`,
			`"text":"","logprobs":null,"finish_reason":"stop"`, "data: [DONE]\n\n"}},
		{chats, hello + tools + `, "stream": true`, call, []string{`"delta":{"content":"I look"}`, `"delta":{"content":"."}`,
			`"delta":{"tool_calls":[{"index":0,"id":"call_`, `"finish_reason":"tool_calls"`}},
	} {
		s := newServer(t, &fake{pieces: c.pieces}, Options{})
		code, body := ask(t, s, "POST", c.path, "{"+c.body+"}")
		rest := body
		for _, want := range c.want {
			at := strings.Index(rest, want)
			if code != http.StatusOK || at < 0 && !strings.Contains(body, want) {
				t.Errorf("%s: %d, %s; want %s", c.body, code, body, want)
			}
		}
		if strings.Contains(c.body, "stream") && strings.Contains(c.body, "tools") && strings.Contains(body, `"content":"\u003ctool`) {
			t.Errorf("a call is streamed as text: %s", body)
		}
	}
}

// TestOptions: the keys of a request set the options of the text, over the defaults of the model.
func TestOptions(t *testing.T) {
	temperature, k, tokens := 0.6, 20, 99
	d := infer.Defaults{Temperature: &temperature, TopK: &k, Tokens: &tokens, Stop: []string{"END"}}
	f := &fake{}
	s := newServer(t, f, Options{Defaults: d, MaxTokens: 1000})
	plain := newServer(t, f, Options{})
	for _, c := range []struct {
		s          *Server
		path, body string
		want       string
	}{
		{plain, texts, once + `, "seed": 1`, `once 16 1 0 0 0 0 1 []`},
		{plain, chats, hello + `, "seed": 1`, ` 4096 1 0 0 0 0 1 []`},
		{s, chats, hello + `, "seed": -1`, ` 99 0.6 20 0 0 0 18446744073709551615 [END]`},
		{s, texts, once + `, "seed": 1, "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "repetition_penalty": 1.2, "max_tokens": 7,
			"stop": ["a", "b"], "n": 1, "logit_bias": {}, "user": "x", "best_of": 1.0, "logprobs": null`, `once 7 0 0 0.5 0.1 1.2 1 [a b]`},
		{s, chats, hello + `, "seed": 1, "max_completion_tokens": 8, "stop": "a", "top_p": 0`, ` 8 0.6 20 1e-09 0 0 1 [a]`},
		{s, texts, `"model": "m", "prompt": ["one"], "seed": 2`, `one 99 0.6 20 0 0 0 2 [END]`},
	} {
		code, body := ask(t, c.s, "POST", c.path, "{"+c.body+"}")
		o := f.last()
		got := fmt.Sprint(o.Prompt, " ", o.Tokens, o.Temperature, o.TopK, " ", o.TopP, o.MinP, o.RepetitionPenalty, o.Seed, o.Stop)
		if code != http.StatusOK || got != c.want || !o.Fit {
			t.Errorf("%s: %d, %q, want %q; %s", c.body, code, got, c.want, body)
		}
	}
	if ask(t, plain, "POST", texts, "{"+once+"}"); f.last().Seed == 0 {
		t.Error("a request without a seed has the seed 0")
	}
	said := `"model": "m", "messages": [{"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text",
		"text": "brief."}]},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather",
			"arguments": "{\"b\": 1, \"a\": 2}"}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "rain", "name": null}], "chat_template_kwargs": {"enable_thinking": false}`
	code, body := ask(t, plain, "POST", chats, "{"+said+"}")
	m := f.last().Messages
	if code != http.StatusOK || len(m) != 3 || m[0].Role != "system" || m[0].Content != "Be brief." ||
		!strings.Contains(string(m[1].Raw), `"function":{"name":"weather","arguments":{"b":1,"a":2}}`) ||
		!strings.Contains(string(m[2].Raw), `"tool_call_id":"c1"`) ||
		f.last().TemplateVars["enable_thinking"] != false {
		t.Errorf("%d, %s, %+v", code, body, m)
	}
}

// TestRefused: what is wrong with a request is said by name, in the form of the API.
func TestRefused(t *testing.T) {
	long := strings.Repeat("x", limitBodyBytes)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
		headers            []string
	}{
		{"POST", chats, `{`, 400, "not JSON", nil},
		{"POST", chats, `[]`, 400, "not a JSON object", nil},
		{"POST", chats, `{} {}`, 400, "", nil},
		{"POST", chats, `{"messages": []}`, 400, "messages", nil},
		{"POST", chats, `{"model": "m"}`, 400, "messages is missing", nil},
		{"POST", texts, `{"prompt": "x"}`, 400, "model is missing", nil},
		{"POST", texts, `{"model": "m"}`, 400, "prompt is missing", nil},
		{"POST", texts, `{"model": "x", "prompt": "x"}`, 404, "model_not_found", nil},
		{"POST", texts, `{"model": 1}`, 400, `"param":"model"`, nil},
		{"POST", texts, "{" + once + `, "model": "m"}`, 400, "model", nil},
		{"POST", texts, "{" + once + `, "n": 2}`, 400, "n = 2 is not supported", nil},
		{"POST", texts, "{" + once + `, "logprobs": 1}`, 400, "logprobs is not supported", nil},
		{"POST", texts, "{" + once + `, "suffix": "x"}`, 400, "suffix", nil},
		{"POST", texts, "{" + once + `, "echo": true}`, 400, "echo", nil},
		{"POST", texts, "{" + once + `, "messages": []}`, 400, "unknown key", nil},
		{"POST", texts, "{" + once + `, "max_tokens": 0}`, 400, "from 1 to 4096", nil},
		{"POST", texts, "{" + once + `, "max_tokens": 5000}`, 400, "from 1 to 4096", nil},
		{"POST", texts, "{" + once + `, "max_tokens": 1e300}`, 400, "max_tokens", nil},
		{"POST", texts, "{" + once + `, "max_tokens": 1.5}`, 400, "max_tokens", nil},
		{"POST", texts, "{" + once + `, "temperature": -1}`, 400, "temperature is -1", nil},
		{"POST", texts, "{" + once + `, "temperature": "hot"}`, 400, "temperature", nil},
		{"POST", texts, "{" + once + `, "top_p": 1.1}`, 400, "top_p", nil},
		{"POST", texts, "{" + once + `, "seed": 0.5}`, 400, "seed", nil},
		{"POST", texts, "{" + once + `, "stop": [""]}`, 400, "empty", nil},
		{"POST", texts, "{" + once + `, "stop": [1]}`, 400, "stop", nil},
		{"POST", texts, "{" + once + `, "stop": ["1","2","3","4","5","6","7","8","9","1","2","3","4","5","6","7","8"]}`, 400, "the limit is 16",
			nil},
		{"POST", texts, "{" + once + `, "stream_options": {}}`, 200, "", nil},
		{"POST", texts, "{" + once + `, "stream_options": {"include_usage": true}}`, 400, "without stream", nil},
		{"POST", texts, "{" + once + `, "stream_options": {"x": 1}}`, 400, "unknown key", nil},
		{"POST", texts, `{"model": "m", "prompt": ["a", "b"]}`, 400, "one text", nil},
		{"POST", texts, `{"model": "m", "prompt": [1, 2]}`, 400, "one text", nil},
		{"POST", texts, "{" + once + `, "surprise": 1}`, 400, `"param":"surprise"`, nil},
		{"POST", chats, "{" + hello + `, "logprobs": true}`, 400, "logprobs", nil},
		{"POST", chats, "{" + hello + `, "tools": []}`, 400, "tools", nil},
		{"POST", chats, "{" + hello + `, "tools": [{"type": "x"}]}`, 400, "tool 1", nil},
		{"POST", chats, "{" + hello + `, "tool_choice": "auto"}`, 400, "without tools", nil},
		{"POST", chats, "{" + hello + tools + `, "tool_choice": "required"}`, 400, "tool_choice", nil},
		{"POST", chats, "{" + hello + `, "response_format": {"type": "json_object"}}`, 400, "response_format", nil},
		{"POST", chats, "{" + hello + `, "chat_template_kwargs": {"x": [1]}}`, 400, "chat_template_kwargs", nil},
		{"POST", chats, `{"model": "m", "messages": [{"role": "user"}]}`, 400, "content is missing", nil},
		{"POST", chats, `{"model": "m", "messages": [{"content": "x"}]}`, 400, "role", nil},
		{"POST", chats, `{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, 400, "image_url", nil},
		{"POST", chats, `{"model": "m", "messages": [{"role": "user", "content": "x", "wieght": 1}]}`, 400, "wieght", nil},
		{"POST", chats, `{"model": "m", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": "["}}]}]}`, 400,
			"call 1", nil},
		{"POST", chats, `{"model": "m", "messages": "` + long + `"}`, 413, "4194304 bytes", nil},
		{"POST", texts, "{" + once + "}", 415, "application/json", []string{"Content-Type", "text/plain"}},
		{"POST", texts, "{" + once + "}", 403, "DNS rebinding", []string{"Host", "evil.example"}},
		{"POST", texts, "{" + once + "}", 403, "another site", []string{"Origin", "http://evil.example"}},
		{"POST", texts, "{" + once + "}", 403, "another site", []string{"Sec-Fetch-Site", "cross-site"}},
		{"GET", chats, "", 404, "no such route", nil},
		{"GET", "/v1/engines", "", 404, "no such route", nil},
		{"GET", "/v1/models/x", "", 404, "model_not_found", nil},
		{"GET", "/v1/models/m", "", 200, `"owned_by":"troupe"`, nil},
		{"GET", "/v1/models", "", 200, `"object":"list"`, nil},
		{"GET", "/readyz", "", 200, "generating 1 texts", nil},
		{"GET", "/v1/models?" + strings.Repeat("x", limitURLBytes), "", 414, "limit", nil},
	} {
		code, body := ask(t, newServer(t, &fake{}, Options{}), c.method, c.path, c.body, c.headers...)
		var e struct{ Error *apiError }
		if code != c.status || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), c.says) {
			t.Errorf("%s %s %.80s: %d, %s; want %d and %q", c.method, c.path, c.body, code, body, c.status, c.says)
		} else if code >= 400 && (json.Unmarshal([]byte(body), &e) != nil || e.Error == nil || e.Error.Message == "" || e.Error.Type == "") {
			t.Errorf("%.80s: not an error of the API: %s", c.body, body)
		}
	}
	for status, err := range map[int]error{429: infer.ErrBusy, 400: infer.ErrContext, 503: infer.ErrMemory, 500: errors.New("broken")} {
		for _, stream := range []string{"", `, "stream": true`} {
			if code, body := ask(t, newServer(t, &fake{err: err}, Options{}), "POST", texts, "{"+once+stream+"}"); code != status {
				t.Errorf("%v: %d, %s", err, code, body)
			}
		}
	}
	if _, body := ask(t, newServer(t, &fake{pieces: []string{"a"}, err: errors.New("broken")}, Options{}), "POST", texts, "{"+once+
		`, "stream": true}`); !strings.Contains(body, `"text":"a"`) || !strings.Contains(body, `data: {"error":{"message":"the server failed`) {
		t.Errorf("an error in a stream: %s", body)
	}
}

// TestToken: a request needs the token; a server that other machines reach needs one, and TLS.
func TestToken(t *testing.T) {
	s := newServer(t, &fake{}, Options{Token: "0123456789abcdef"})
	for given, want := range map[string]int{"": 401, "Bearer ": 401, "Bearer 0123456789abcdeg": 401, "Basic 0123456789abcdef": 401,
		"Bearer 0123456789abcdef": 200, "Bearer " + strings.Repeat("x", 5000): 401} {
		code, body := ask(t, s, "GET", "/v1/models", "", "Authorization", given)
		if code != want || code == 401 && !strings.Contains(body, "invalid_api_key") {
			t.Errorf("%.40q: %d, %s", given, code, body)
		}
	}
	if code, _ := ask(t, s, "GET", "/healthz", ""); code != 200 {
		t.Errorf("health needs the token: %d", code)
	}
	if _, err := New(&fake{}, Options{Name: "m", Remote: true}); !errors.Is(err, ErrOptions) {
		t.Errorf("a server without a token for other machines: %v", err)
	}
	remote := newServer(t, &fake{}, Options{Token: "0123456789abcdef", Remote: true})
	if code, body := ask(t, remote, "GET", "/v1/models", "", "Authorization", "Bearer 0123456789abcdef"); code != 403 ||
		!strings.Contains(body, "https") {
		t.Errorf("without TLS: %d, %s", code, body)
	}
}

// start serves on loopback until stop is called, which returns how the server ended.
func start(t *testing.T, s *Server) (address string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	return l.Addr().String(), func() error {
		cancel()
		return <-served
	}
}

// TestDrains: at its end a server answers what is in progress, up to its grace, and nothing new.
func TestDrains(t *testing.T) {
	for _, grace := range []time.Duration{time.Minute, 0} {
		f := &fake{pieces: []string{"a", "b"}, wait: make(chan struct{})}
		s := newServer(t, f, Options{Grace: grace})
		address, stop := start(t, s)
		c := &http.Client{}
		r, err := c.Post("http://"+address+texts, "application/json", strings.NewReader("{"+once+`, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(r.Body)
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"text":"a"`) {
			t.Fatal(line, err)
		}
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		for code := 200; code != 503; { // until the end has begun
			code, _ = ask(t, s, "GET", "/readyz", "")
		}
		if grace > 0 {
			close(f.wait)
		}
		rest, err := io.ReadAll(lines)
		if whole := strings.Contains(string(rest), "[DONE]"); whole != (grace > 0) {
			t.Errorf("grace %v: %s, %v", grace, rest, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("grace %v: %v", grace, err)
		}
		_ = r.Body.Close()
		c.CloseIdleConnections()
	}
}

// streaming returns a connection on which a text has begun to stream.
func streaming(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	body := "{" + once + `, "stream": true}`
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		texts, len(body), body); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestClientLeaves: the text of a client that leaves, or does not read, ends.
func TestClientLeaves(t *testing.T) {
	f := &fake{pieces: []string{"a", "b"}, wait: make(chan struct{})}
	s := newServer(t, f, Options{Grace: time.Minute})
	address, stop := start(t, s)
	conn := streaming(t, address)
	_ = conn.Close()
	if err := stop(); err != nil { // it waits for the text, which ends with its client
		t.Error(err)
	}
}

// TestSlowReader: a client that does not read what it has requested is disconnected, and its text ends.
func TestSlowReader(t *testing.T) {
	f := &fake{}
	for range 1 << 10 { // more than a connection holds
		f.pieces = append(f.pieces, strings.Repeat("x", 64<<10))
	}
	s := newServer(t, f, Options{Grace: time.Minute})
	s.patience = 100 * time.Millisecond
	address, stop := start(t, s)
	conn := streaming(t, address)
	defer func() { _ = conn.Close() }()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := s.answered.Load(); n != 0 {
		t.Errorf("%d answers", n)
	}
}

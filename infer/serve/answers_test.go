package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/infer"
)

// pausing is a model that pauses after each piece, or panics.
type pausing struct {
	fake
	pause  time.Duration
	panics bool
}

func (p *pausing) Generate(ctx context.Context, o infer.TextOptions, emit func([]byte) error) error {
	for range 2 {
		if err := emit([]byte("a")); err != nil {
			return err
		}
		if p.panics {
			panic("boom")
		}
		select {
		case <-time.After(p.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	*o.Report = infer.GenerateReport{Finish: infer.FinishStop}
	return nil
}

// TestPause: a stream survives tokens that take longer than a client has to read, over HTTP/1 and HTTP/2.
func TestPause(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		s := newServer(t, &pausing{pause: 200 * time.Millisecond}, Options{})
		s.patience = 50 * time.Millisecond
		web := httptest.NewUnstartedServer(s)
		web.EnableHTTP2 = h2
		web.StartTLS()
		c := web.Client()
		if transport := c.Transport.(*http.Transport); !h2 {
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		r, err := c.Post(web.URL+texts, "application/json", strings.NewReader("{"+once+`, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ProtoMajor == 2 != h2 || !strings.HasSuffix(string(body), "[DONE]\n\n") {
			t.Errorf("%s: %q, %v", r.Proto, body, err)
		}
		_ = r.Body.Close()
		c.CloseIdleConnections()
		web.Close()
	}
}

// TestPanic: a panic is logged, counted and answered; a stream breaks off.
func TestPanic(t *testing.T) {
	for _, stream := range []string{"", `, "stream": true`} {
		var mu sync.Mutex
		said := ""
		s := newServer(t, &pausing{panics: true}, Options{Log: func(m string) { mu.Lock(); said += m; mu.Unlock() }})
		web := httptest.NewServer(s)
		r, err := http.Post(web.URL+texts, "application/json", strings.NewReader("{"+once+stream+"}"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if whole := stream == ""; whole != (err == nil) || whole != (r.StatusCode == http.StatusInternalServerError) || strings.Contains(string(body), "boom") {
			t.Errorf("%q: %d, %q, %v", stream, r.StatusCode, body, err)
		}
		_ = r.Body.Close()
		web.Close()
		mu.Lock()
		if s.refused.Load() != 1 || !strings.Contains(said, "boom") || !strings.Contains(said, "answers_test.go") {
			t.Errorf("%q: %d refused, log %q", stream, s.refused.Load(), said)
		}
		mu.Unlock()
	}
}

// TestLastWords: clients whose texts end with the grace get an error.
func TestLastWords(t *testing.T) {
	for stream, want := range map[string]string{"": "shutting down",
		`, "stream": true`: `data: {"error":{"message":"the server is shutting down`} {
		f := &pausing{pause: time.Hour}
		s := newServer(t, f, Options{})
		address, stop := start(t, s)
		began := make(chan struct{})
		s.model = begins{f, began}
		ended := make(chan error, 1)
		go func() { <-began; ended <- stop() }()
		r, err := http.Post("http://"+address+texts, "application/json", strings.NewReader("{"+once+stream+"}"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%q: %s, %v", stream, body, err)
		}
		_ = r.Body.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// begins says when its first text begins.
type begins struct {
	Model
	began chan struct{}
}

func (b begins) Generate(ctx context.Context, o infer.TextOptions, emit func([]byte) error) error {
	close(b.began)
	return b.Model.Generate(ctx, o, emit)
}

// TestKeys: two limits of the tokens that differ are refused, JSON with spaces is the same JSON, and a broken template shows no path.
func TestKeys(t *testing.T) {
	broken := fmt.Errorf("/home/me/model: %w: line 1", infer.ErrTemplate)
	for _, c := range []struct {
		body   string
		err    error
		status int
		says   string
	}{
		{`, "max_tokens": 5, "max_completion_tokens": 6`, nil, 400, "differ: 5 and 6"},
		{`, "max_tokens": 5, "max_completion_tokens": 5`, nil, 200, ""},
		{`, "logit_bias": { }, "modalities": [ "text" ]`, nil, 200, ""},
		{`, "logit_bias": {"5": 1}`, nil, 400, "logit_bias"},
		{"", &infer.SetupError{Err: broken}, 500, "chat template can't be used"},
	} {
		code, body := ask(t, newServer(t, &fake{err: c.err}, Options{}), "POST", chats, "{"+hello+c.body+"}")
		if code != c.status || !strings.Contains(body, c.says) || strings.Contains(body, "/home") {
			t.Errorf("%s, %v: %d, %s", c.body, c.err, code, body)
		}
	}
}

// TestHosts: a server on loopback accepts the host that it listens on.
func TestHosts(t *testing.T) {
	s := newServer(t, &fake{}, Options{Hosts: []string{"127.0.0.2"}})
	for host, want := range map[string]int{"127.0.0.2:8702": 200, "127.0.0.3:8702": 403, "localhost": 200, "evil.example": 403} {
		if code, body := ask(t, s, "GET", "/v1/models", "", "Host", host); code != want {
			t.Errorf("%s: %d, %s", host, code, body)
		}
	}
}

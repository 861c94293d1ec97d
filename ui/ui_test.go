package ui_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/ui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a token of the tests"

// server serves the runs of folders.
func server(t *testing.T, o ui.Options, dirs ...string) *ui.Server {
	t.Helper()
	s, err := ui.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, dir := range dirs {
		if err := s.Open(dir); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// folder makes a folder of runs, each with a line of figures.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		write(t, filepath.Join(dir, name, "metrics.jsonl"), `{"step":1,"loss":2.5}`+"\n")
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// request is one with a host of this machine and further headers, by pairs.
func request(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8080"
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ids are those of all runs, by their names.
func ids(t *testing.T, h http.Handler, headers ...string) map[string]string {
	t.Helper()
	w := do(h, request("GET", "/api/runs", "", headers...))
	var all struct {
		Runs []struct{ ID, Name string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	byName := make(map[string]string)
	for _, r := range all.Runs {
		byName[r.Name] = r.ID
	}
	return byName
}

// TestWhoMay: what is refused, and with which reason.
func TestWhoMay(t *testing.T) {
	local := server(t, ui.Options{Token: token}, folder(t, "one"))
	remote := server(t, ui.Options{Token: token, Remote: true}, folder(t, "one"))
	off := server(t, ui.Options{}, folder(t, "one"))
	mounted := server(t, ui.Options{Authorize: func(r *http.Request, a ui.Access) error {
		if r.Header.Get("X-User") == "ann" || a == ui.Read {
			return nil
		}
		return errors.New("ann alone may")
	}}, folder(t, "one"))
	change := "/api/runs/" + ids(t, local)["one"] + "/change"
	const ask = `{"kind":"pause"}`
	json := []string{"Content-Type", "application/json"}
	bearer := []string{"Authorization", "Bearer " + token}
	for _, tc := range []struct {
		name           string
		h              http.Handler
		method, target string
		tls            bool
		headers        []string
		status         int
		says           string
	}{
		{"reading on loopback", local, "GET", "/api/runs", false, nil, 200, `"one"`},
		{"by the name localhost", local, "GET", "/api/runs", false, []string{"Host", "localhost:99"}, 200, ""},
		{"over IPv6", local, "GET", "/api/runs", false, []string{"Host", "[::1]:99"}, 200, ""},
		{"a rebound name", local, "GET", "/api/runs", false, []string{"Host", "evil.example:8080"}, 403, "evil.example"},
		{"a rebound name for the page", local, "GET", "/", false, []string{"Host", "evil.example"}, 403, "host"},
		{"a name that begins right", local, "GET", "/api/runs", false, []string{"Host", "localhost.evil.example"}, 403, "host"},
		{"another site", local, "GET", "/api/runs", false, []string{"Sec-Fetch-Site", "cross-site"}, 403, "another site"},
		{"another port of this machine", local, "GET", "/api/runs", false, []string{"Sec-Fetch-Site", "same-site"}, 403, "another site"},
		{"another origin", local, "GET", "/api/runs", false, []string{"Origin", "http://127.0.0.1:9999"}, 403, "another site"},
		{"no origin at all", local, "GET", "/api/runs", false, []string{"Origin", "null"}, 403, "another site"},
		{"its own origin", local, "GET", "/api/runs", false, []string{"Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin"}, 200,
			""},
		{"a link on another page", local, "GET", "/", false, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200,
			"<title>"},
		{"a script for another page", local, "GET", "/page/app.js", false, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
			403, "another site"},
		{"a token in the address", local, "GET", "/api/runs?token=" + "x", false, nil, 400, "address contains a token"},
		{"a token in the page's address", local, "GET", "/?token=x", false, nil, 400, "address contains a token"},
		{"control without a token", local, "POST", change, false, json, 401, "needs the access token"},
		{"control with a wrong token", local, "POST", change, false, append([]string{"Authorization", "Bearer nonsense"}, json...), 401,
			"does not accept the token"},
		{"control with a longer token", local, "POST", change, false, append([]string{"Authorization", "Bearer " + token + "x"}, json...), 401,
			"does not accept the token"},
		{"control as a form", local, "POST", change, false, append([]string{"Content-Type", "text/plain"}, bearer...), 415, "application/json"},
		{"control by another site", local, "POST", change, false, append(append([]string{"Sec-Fetch-Site", "cross-site"}, json...), bearer...),
			403, "another site"},
		{"control by a GET", local, "GET", change, false, bearer, 404, ""},
		{"control of a run of files", local, "POST", change, false, append(bearer, json...), 409, "only reads the run's files"},
		{"control where it is off", off, "POST", change, false, append(bearer, json...), 403, "has no token"},
		{"reading from elsewhere without a token", remote, "GET", "/api/runs", true, nil, 401, "needs the access token"},
		{"reading from elsewhere", remote, "GET", "/api/runs", true, bearer, 200, ""},
		{"the page from elsewhere", remote, "GET", "/", true, nil, 200, "<title>"},
		{"reading from elsewhere in plain HTTP", remote, "GET", "/api/runs", false, bearer, 403, "over TLS"},
		{"reading by a service's policy", mounted, "GET", "/api/runs", false, []string{"Host", "service.example"}, 200, ""},
		{"control against a service's policy", mounted, "POST", change, false, append([]string{"Host", "service.example"}, json...), 403,
			"ann alone"},
		{"another site and a service's policy", mounted, "POST", change, false,
			append([]string{"X-User", "ann", "Sec-Fetch-Site", "cross-site"}, json...), 403, "another site"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request(tc.method, tc.target, ask, tc.headers...)
			if tc.tls {
				r.TLS = &tls.ConnectionState{}
			}
			w := do(tc.h, r)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%d %.300s, want %d with %q", w.Code, w.Body, tc.status, tc.says)
			}
			if strings.Contains(w.Body.String(), token) {
				t.Error("the answer has the token")
			}
			h := w.Header()
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
				if !strings.Contains(h.Get("Content-Security-Policy"), want) {
					t.Errorf("the policy %q lacks %s", h.Get("Content-Security-Policy"), want)
				}
			}
			if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("headers %v", h)
			}
			if strings.HasPrefix(tc.target, "/api/") && h.Get("Cache-Control") != "no-store" {
				t.Errorf("data may be stored: %v", h)
			}
		})
	}
}

// TestPaths: nothing but runs is read, whatever a request or a folder names.
func TestPaths(t *testing.T) {
	dir := folder(t, "one")
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, filepath.Join(secret, "metrics.jsonl"), `{"step":1,"loss":54321.0625}`+"\n")
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	// A run whose file is a link, out of an archive.
	if err := os.MkdirAll(filepath.Join(dir, "two"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "two", "config.toml"), "")
	if err := os.Symlink(filepath.Join(secret, "metrics.jsonl"), filepath.Join(dir, "two", "metrics.jsonl")); err != nil {
		t.Fatal(err)
	}
	s := server(t, ui.Options{}, dir)
	all := ids(t, s)
	if all["link"] != "" || all["one"] == "" || len(all) != 2 {
		t.Errorf("the runs are %v", all)
	}
	if w := do(s, request("GET", "/api/runs/"+all["two"], "")); strings.Contains(w.Body.String(), "54321.0625") ||
		!strings.Contains(w.Body.String(), "symbolic link") {
		t.Errorf("a linked file: %s", w.Body)
	}
	for _, target := range []string{"/../../etc/passwd", "/page/../../ui.go", "/page/%2e%2e/ui.go", "/page/..%2findex.html",
		"/api/runs/../../etc/passwd", "/api/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/api/runs/" + filepath.Base(dir), "/api/runs/" +
			strings.ReplaceAll(secret, "/", "%2f"), "/api/runs/one"} {
		if w := do(s, request("GET", target, "")); w.Code == http.StatusOK {
			t.Errorf("%s: %d %.100s", target, w.Code, w.Body)
		}
	}
	for _, target := range []string{"step?n=-1", "step?n=../1", "curves?by=size", "curves?from=NaN", "curves?buckets=1e9", "curves?names=" +
		strings.Repeat(",", 100)} {
		if w := do(s, request("GET", "/api/runs/"+all["one"]+"/"+target, "")); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %.100s", target, w.Code, w.Body)
		}
	}
	if w := do(s, request("GET", "/api/runs?x="+strings.Repeat("x", 5000), "")); w.Code != http.StatusRequestURITooLong {
		t.Errorf("a long address: %d", w.Code)
	}
	if err := s.Open(filepath.Join(dir, "one", "metrics.jsonl")); err == nil {
		t.Error("a file was opened as a folder of runs")
	}
}

// TestFiles: what is read of a run's folder, and what of broken files.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	write(t, filepath.Join(run, "metrics.jsonl"), `{"step":0,"val_loss":4}`+"\n"+
		`{"step":1,"loss":3,"grad_norm":null,"metrics":{"accuracy":0.5}}`+"\n"+`{"step":2,"lo`)
	write(t, filepath.Join(run, "events.jsonl"), `{"time_ms":5,"step":1,"kind":"checkpoint","text":"<b>bold</b>"}`+"\nnonsense\n")
	write(t, filepath.Join(run, "stats.jsonl"),
		`{"step":1,"mem_bytes":[10,20],"layers":[{"name":"embed","stage":0,"params":7,"weight_norm":1.5,"grad_norm":null}]}`+"\n")
	write(t, filepath.Join(run, "samples.jsonl"), `{"step":1,"prompt":"a","text":"<script>alert(1)</script>"}`+"\n")
	write(t, filepath.Join(run, "trace.jsonl"),
		`{"step":1,"schedule":"1f1b","table":"0F0,0B0\n1F0,1B0\n","ms":[[[0,1],[4,6]],[[1.5,2],[2,3.5]]],"chunk_flops":[1,1],"threads":1}`+"\n")
	s := server(t, ui.Options{}, run)
	id := ids(t, s)["run"]
	for target, want := range map[string][]string{
		"":                                    {`"step":1`, `"loss":3`, `"val_loss":4`},
		"/marks":                              {`\u003cb\u003ebold`, `"checkpoint"`},
		"/names":                              {`"loss"`, `"metrics.accuracy"`},
		"/curves?names=loss,metrics.accuracy": {`"x":[1]`, `"mean":[3]`, `"mean":[0.5]`},
		"/model":                              {`"embed"`, `"weight_norms":[1.5]`, `"grad_norms":[null]`, `"mem_bytes":20`, `"traced":1`},
		"/samples":                            {`\u003cscript\u003e`},
		"/steps":                              {`[1]`},
		"/step?n=1":                           {`TRP1`, `"makespan_ms":6`, `"critical":4`, `"waits"`},
		"/step":                               {`TRP1`},
	} {
		w := do(s, request("GET", "/api/runs/"+id+target, ""))
		for _, part := range want {
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: %d %.400s lacks %s", target, w.Code, w.Body, part)
			}
		}
	}
	if w := do(s, request("GET", "/api/runs/"+id+"/step?n=2", "")); w.Code != http.StatusNotFound ||
		!strings.Contains(w.Body.String(), "step 2 was not recorded") {
		t.Errorf("a step that was not recorded: %d %s", w.Code, w.Body)
	}
	for name, trace := range map[string]string{
		"times":    `{"step":1,"table":"0F0\n","ms":[[]],"chunk_flops":[1]}`,
		"ranks":    `{"step":1,"table":"0F0\n","ms":[],"chunk_flops":[1]}`,
		"order":    `{"step":1,"table":"0F0\n","ms":[[[2,1]]],"chunk_flops":[1]}`,
		"table":    `{"step":1,"table":"0F0,,x\n","ms":[[[1,2]]],"chunk_flops":[1]}`,
		"nothing":  `{"step":1}`,
		"deadlock": `{"step":1,"table":"0B0,0F0\n1F0,1B0\n","ms":[[[0,1],[4,6]],[[1.5,2],[2,3.5]]],"chunk_flops":[1,1]}`,
	} {
		bad := filepath.Join(dir, "bad-"+name)
		write(t, filepath.Join(bad, "trace.jsonl"), trace+"\n")
		s := server(t, ui.Options{}, bad)
		if w := do(s, request("GET", "/api/runs/"+ids(t, s)["bad-"+name]+"/step", "")); w.Code == http.StatusOK ||
			!strings.Contains(w.Body.String(), "error") {
			t.Errorf("%s: %d %.200s", name, w.Code, w.Body)
		}
	}
}

// TestGrowing: a file that grows is read on, one that is replaced anew.
func TestGrowing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "run", "events.jsonl")
	write(t, filepath.Join(dir, "run", "metrics.jsonl"), "")
	write(t, path, `{"step":1,"kind":"start"}`+"\n"+`{"step":2,"ki`)
	s := server(t, ui.Options{}, dir)
	id := ids(t, s)["run"]
	kinds := func() (all []string) {
		time.Sleep(1100 * time.Millisecond) // files are looked at once a second
		var v struct{ Marks []struct{ Kind string } }
		if err := json.Unmarshal(do(s, request("GET", "/api/runs/"+id+"/marks", "")).Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		for _, m := range v.Marks {
			all = append(all, m.Kind)
		}
		return all
	}
	if got := kinds(); !slices.Equal(got, []string{"start"}) {
		t.Errorf("at first %v", got)
	}
	write(t, path, `{"step":1,"kind":"start"}`+"\n"+`{"step":2,"kind":"pause"}`+"\n")
	if got := kinds(); !slices.Equal(got, []string{"start", "pause"}) {
		t.Errorf("after it has grown %v", got)
	}
	write(t, path, `{"step":1,"kind":"resume"}`+"\n")
	if got := kinds(); !slices.Equal(got, []string{"resume"}) {
		t.Errorf("after it was replaced %v", got)
	}
}

// TestMounted: below a path the page and its data are the same.
func TestMounted(t *testing.T) {
	s := server(t, ui.Options{}, folder(t, "one"))
	mux := http.NewServeMux()
	mux.Handle("/troupe/", http.StripPrefix("/troupe", s))
	for target, says := range map[string]string{"/troupe/": `src="page/app.js"`, "/troupe/page/app.js": "import",
		"/troupe/api/runs": `"one"`} {
		if w := do(mux, request("GET", target, "")); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s: %d %.200s", target, w.Code, w.Body)
		}
	}
	for name, text := range pageText(t) { // links are relative, so that it can be mounted anywhere
		for _, no := range []string{`="/`, `'/api`, "`/api", `"/page`, "innerHTML", "http://", "https://", "eval("} {
			for line := range strings.Lines(text) {
				if strings.Contains(line, no) && !strings.Contains(line, "www.w3.org") {
					t.Errorf("%s has %q: %.200s", name, no, line)
				}
			}
		}
	}
}

// pageText are the page's files.
func pageText(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	var files []string
	for _, folder := range []string{"page", "../internal/show/draw/page"} {
		some, err := filepath.Glob(folder + "/*")
		if err != nil || len(some) == 0 {
			t.Fatal(some, err)
		}
		files = append(files, some...)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[f] = string(b)
	}
	return all
}

// training begins a small run.
func training(t *testing.T, sets ...string) *troupe.Run {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "text.txt"), strings.Repeat("to be or not to be, that is the question. ", 200))
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	cfg, err := config.Parse("test", []byte(`
[run]
steps = 100000
eval_every = 0
eval_batches = 1
checkpoint_every = 0
[model]
layers = 2
hidden = 16
heads = 2
context = 16
[batch]
sequences = 8
microbatch = 2
[pipeline]
stages = 2
`), append([]string{"run.out=" + quoted(filepath.Join(dir, "run")),
		"data.train=[" + quoted(filepath.Join(dir, "text.txt")) + "]"}, sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Kill()
		_, _ = r.Wait()
	})
	return r
}

// served is a real server, at a free port.
func served(t *testing.T, h http.Handler) (link string) {
	t.Helper()
	l, err := ui.Listen("127.0.0.1:0", "", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ui.Serve(ctx, l, h) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return l.Link("")
}

// TestLive follows a run over its stream, changes it, and sees its end.
func TestLive(t *testing.T) {
	t.Parallel()
	r := training(t)
	s := server(t, ui.Options{Token: token})
	if err := s.Attach("live", r); err != nil {
		t.Fatal(err)
	}
	if err := s.Attach("live", r); err == nil {
		t.Error("a name was given twice")
	}
	link := served(t, s)
	id := ids(t, s)["live"]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	follow := func(after string) (next func(kind, says string) string, stop func()) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, link+"api/runs/"+id+"/events?pipeline=1", http.NoBody)
		if after != "" {
			req.Header.Set("Last-Event-ID", after)
		}
		res, err := http.DefaultClient.Do(req) //nolint:bodyclose // stop does
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 16<<20)
		return func(kind, says string) string {
			t.Helper()
			at := ""
			for lines.Scan() {
				if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
					at = name
				} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && at == kind && strings.Contains(data, says) {
					return data
				}
			}
			t.Fatalf("no event %s with %q came: %v", kind, says, lines.Err())
			return ""
		}, func() { _ = res.Body.Close() }
	}
	next, stop := follow("")
	next("run", `"state":"running"`)
	next("status", `"stage 1"`)
	next("traced", `"step"`)
	next("now", `"acts":[`)
	w := do(s, request("GET", "/api/runs/"+id+"/step", ""))
	if w.Code != http.StatusOK || !bytes.HasPrefix(w.Body.Bytes(), []byte("TRP1")) {
		t.Errorf("the step: %d %.100q", w.Code, w.Body)
	}
	ask := func(body string) *httptest.ResponseRecorder {
		return do(s, request("POST", "/api/runs/"+id+"/change", body, "Content-Type", "application/json", "Authorization", "Bearer "+token))
	}
	for body, status := range map[string]int{`{"kind":"pause"}`: 202, `{"kind":"explode"}`: 400, `{"kind":"rate"}`: 400,
		`{"kind":"pause","extra":1}`: 400, `nonsense`: 400, strings.Repeat(" ", 5000) + `{}`: 413} {
		if w := ask(body); w.Code != status {
			t.Errorf("%.40q: %d %s, want %d", body, w.Code, w.Body, status)
		}
	}
	next("marks", "paused after step")
	next("run", `"state":"paused"`)
	ask(`{"kind":"resume"}`)
	next("marks", "resumed after step")
	ask(`{"kind":"rate","lr":0.002,"min_lr":0.0001}`)
	next("marks", "peak 0.002")
	stop()
	// Behind the first mark there are others; the first does not come again.
	next, stop = follow("1")
	if marks := next("marks", "paused"); strings.Contains(marks, `"n":1,`) {
		t.Errorf("the first mark came again: %s", marks)
	}
	r.Stop()
	next("marks", "stopped at step")
	next("over", "")
	stop()
	if w := ask(`{"kind":"pause"}`); w.Code != http.StatusConflict {
		t.Errorf("a change after the end: %d %s", w.Code, w.Body)
	}
	done, cancelWait := context.WithTimeout(ctx, 10*time.Second)
	defer cancelWait()
	s.Wait(done)
	if done.Err() != nil {
		t.Error("Wait waits for more than the end")
	}
	if w := do(s, request("GET", "/api/runs/"+id+"/curves?names=loss", "")); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), `"step":[1`) {
		t.Errorf("the curves of a run that has ended: %d %.200s", w.Code, w.Body)
	}
}

// TestSlowReaders: 1,000 readers who ask and then take nothing leave the run as it is, and the server
// answers others.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	digest := func(watch func(r *troupe.Run)) string {
		r := training(t, "run.steps=60")
		watch(r)
		if _, err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(r.Info().Out, "metrics.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		for line := range strings.Lines(string(text)) {
			var rec struct {
				Step     int
				Loss     json.RawMessage
				GradNorm json.RawMessage `json:"grad_norm"`
			}
			if err := json.Unmarshal([]byte(line), &rec); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(h, rec.Step, string(rec.Loss), string(rec.GradNorm))
		}
		return hex.EncodeToString(h.Sum(nil))
	}
	alone := digest(func(*troupe.Run) {})
	watched := digest(func(r *troupe.Run) {
		s := server(t, ui.Options{Token: token})
		if err := s.Attach("run", r); err != nil {
			t.Fatal(err)
		}
		link := served(t, s)
		id := ids(t, s)["run"]
		at := strings.TrimSuffix(strings.TrimPrefix(link, "http://"), "/")
		var all sync.WaitGroup
		conns := make(chan net.Conn, 1000)
		for range 1000 {
			all.Add(1)
			go func() {
				defer all.Done()
				c, err := net.DialTimeout("tcp", at, 10*time.Second)
				if err != nil {
					return // the system's queue is full: as good as refused
				}
				_, _ = fmt.Fprintf(c, "GET /api/runs/%s/events?pipeline=1 HTTP/1.1\r\nHost: %s\r\n\r\n", id, at)
				conns <- c
			}()
		}
		all.Wait()
		close(conns)
		t.Cleanup(func() {
			for c := range conns {
				_ = c.Close()
			}
		})
		if len(conns) < 500 {
			t.Errorf("only %d readers came through", len(conns))
		}
		// The handler answers others all the same.
		if w := do(s, request("GET", "/api/runs/"+id, "")); w.Code != http.StatusOK {
			t.Errorf("beside slow readers: %d %s", w.Code, w.Body)
		}
		w := httptest.NewRecorder()
		short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		s.ServeHTTP(w, request("GET", "/api/runs/"+id+"/events", "").WithContext(short))
		if w.Code != http.StatusServiceUnavailable && w.Code != http.StatusOK {
			t.Errorf("one more reader: %d %s", w.Code, w.Body)
		}
	})
	if alone != watched {
		t.Error("the losses of a run that 1,000 readers look at are others")
	}
}

// TestListen: plain on loopback, TLS elsewhere, with a certificate whose fingerprint is told.
func TestListen(t *testing.T) {
	if _, err := ui.Listen("127.0.0.1:0", "a.pem", ""); err == nil {
		t.Error("a certificate without its key was taken")
	}
	if _, err := ui.Listen("127.0.0.1:0", "none.pem", "none.pem"); err == nil {
		t.Error("files that are not there were taken")
	}
	l, err := ui.Listen("127.0.0.1:0", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if link := l.Link("t"); l.Remote || l.TLS || !strings.HasPrefix(link, "http://127.0.0.1:") || !strings.HasSuffix(link, "/#token=t") {
		t.Errorf("on loopback: %+v, %s", l, link)
	}
	_ = l.Close()
	far := &ui.Listener{Remote: true, Listener: l.Listener}
	if err := ui.Serve(context.Background(), far, http.NotFoundHandler()); !errors.Is(err, ui.ErrPlain) {
		t.Errorf("plain HTTP off loopback: %v", err)
	}

	l, err = ui.Listen("0.0.0.0:0", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if !l.Remote || !l.TLS || len(l.Fingerprint) != 95 || !strings.HasPrefix(l.Link(""), "https://") {
		t.Errorf("off loopback: %+v", l)
	}
	s := server(t, ui.Options{Token: token, Remote: true}, folder(t, "one"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ui.Serve(ctx, l, s) }()
	var seen string
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			sum := sha256.Sum256(c.PeerCertificates[0].Raw)
			seen = strings.ToUpper(hex.EncodeToString(sum[:]))
			return nil
		}}}}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+port+"/api/runs", http.NoBody)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK || seen != strings.ReplaceAll(l.Fingerprint, ":", "") {
		t.Errorf("%d %s; the certificate is %s, told as %s", res.StatusCode, body, seen, l.Fingerprint)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSetup: the configuration, its differences, and the results that the list of runs shows.
func TestSetup(t *testing.T) {
	dir := t.TempDir()
	cfg := func(sets ...string) string {
		c, err := config.Parse("test", []byte("[run]\nsteps = 100\n[data]\ntrain = [\"a.txt\"]\n[optimizer]\nwarmup_steps = 10\n"), sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(c.TOML())
	}
	for name, lr := range map[string]string{"one": "0.003", "two": "0.001"} {
		write(t, filepath.Join(dir, name, "config.toml"), cfg("optimizer.lr="+lr, "run.name="+name, "pipeline.stages="+
			map[string]string{"one": "1",
				"two": "2"}[name]))
		write(t, filepath.Join(dir, name, "metrics.jsonl"), `{"step":1,"loss":3,"val_loss":2.5,"step_ms":500,"tokens_per_s":10}`+"\n"+
			`{"step":2,"loss":3,"val_loss":2.25,"step_ms":500,"tokens_per_s":30}`+"\n"+
			`{"step":3,"loss":2,"val_loss":2.75,"step_ms":1000,"tokens_per_s":20}`+"\n")
	}
	write(t, filepath.Join(dir, "one", "changes.jsonl"), `{"kind":"rate","step":2,"lr":0.002,"min_lr":0.0001}`+"\n")
	s := server(t, ui.Options{}, dir)
	all := ids(t, s)
	for target, want := range map[string][]string{
		"/api/runs": {`"best_val_loss":2.25`, `"best_step":2`, `"val_step":3`, `"seconds":2`, `"tokens_per_s":20`, `"peak_lr":0.003`,
			`"differs":[{"key":"pipeline.stages","value":"2"}`},
		"/api/runs/" + all["one"] + "/config": {`"folder":"` + filepath.Join(dir, "one"),
			`{"key":"optimizer.lr","value":"0.003","default":"0.001"}`,
			`{"key":"optimizer.min_lr","value":"0.00030000000000000003","default":"0.00030000000000000003"}`, `"checkpoints":[]`},
		"/api/diff?runs=" + all["one"] + "," + all["two"]: {`{"key":"optimizer.lr","values":["0.003","0.001"]}`, `"bits_per_byte":[]`,
			`"remarks":[`},
		"/api/runs/" + all["one"] + "/rate":                           {`"peak":0.002,"floor":0.0001`, `"steps":[4,`, `,100]`, `,0.0001],"then"`},
		"/api/runs/" + all["one"] + "/rate?lr=0.004&min_lr=0&step=50": {`"steps":[51,`, `,0]}`},
	} {
		w := do(s, request("GET", target, ""))
		for _, part := range want {
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: %d %.900s lacks %s", target, w.Code, w.Body, part)
			}
		}
	}
	if w := do(s, request("GET", "/api/diff?runs="+all["one"]+","+all["two"], "")); strings.Contains(w.Body.String(), "min_lr") {
		t.Errorf("a default that follows from another key counts as a difference: %s", w.Body)
	}
	for _, bad := range []string{"rate?lr=x", "rate?lr=-1", "rate?min_lr=NaN", "rate?step=-3", "rate?step=1.5", "rate?lr=Inf",
		"rate?step=9223372036854775807"} {
		if w := do(s, request("GET", "/api/runs/"+all["one"]+"/"+bad, "")); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %.200s", bad, w.Code, w.Body)
		}
	}
}

// TestSets: the page gets the loss of each validation set.
func TestSets(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "one", "metrics.jsonl"), `{"step":1,"loss":3,"val_loss":2.5,"val_losses":{"legal":2.5,"support":4.75}}`+"\n"+
		`{"step":2,"loss":3,"val_loss":2.25,"val_losses":{"legal":2.25,"support":4.5}}`+"\n")
	s := server(t, ui.Options{}, dir)
	w := do(s, request("GET", "/api/runs/"+ids(t, s)["one"]+"/curves?names=val_losses.legal,val_losses.support", ""))
	for _, part := range []string{`"val_losses.legal"`, `"val_losses.support"`, "4.75", "4.5", "2.25"} {
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), part) {
			t.Errorf("%d %.900s lacks %s", w.Code, w.Body, part)
		}
	}
}

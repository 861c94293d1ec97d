package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/telemetry/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get asks a handler.
func get(t *testing.T, h http.Handler) (int, health.Answer) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	var a health.Answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, a
}

// TestHealth: the answers name the parts that do not work, also one that hangs. It is asked once, however often others ask.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New("worker")
		want := func(what string, handler http.Handler, status int, parts ...health.Part) {
			t.Helper()
			code, a := get(t, handler)
			if code != status || a.OK != (status == http.StatusOK) || a.Process != "worker" ||
				!reflect.DeepEqual(a.Checks, append([]health.Part{}, parts...)) {
				t.Errorf("%s: %d %+v, want %d %+v", what, code, a, status, parts)
			}
		}
		want("at the start", h.Live(), http.StatusOK)
		want("at the start", h.Ready(), http.StatusServiceUnavailable, health.Part{Part: "start", Text: "the process is starting"})

		var disk error
		var asked atomic.Int32
		hangs := make(chan struct{})
		checks := []health.Check{
			{Part: "actors", Live: true, Ask: func(context.Context) (string, error) { return "2 runs", nil }},
			{Part: "disk", Ask: func(context.Context) (string, error) { return "writable", disk }},
		}
		h.Set(checks...)
		actors, full := health.Part{Part: "actors", OK: true, Text: "2 runs"}, health.Part{Part: "disk", OK: true, Text: "writable"}
		want("well", h.Live(), http.StatusOK, actors)
		want("well", h.Ready(), http.StatusOK, actors, full)
		disk, full = errors.New("disk full"), health.Part{Part: "disk", Text: "disk full"}
		want("a full disk", h.Live(), http.StatusOK, actors)
		want("a full disk", h.Ready(), http.StatusServiceUnavailable, actors, full)

		slow := health.Part{Part: "run", Text: "run 7 does not answer"} // it waits as long as it may, and says what is late
		h.Set(append(checks, health.Check{Part: "run", Ask: func(ctx context.Context) (string, error) {
			time.Sleep(health.Within(ctx))
			return "", errors.New("run 7 does not answer")
		}})...)
		want("a part waits", h.Ready(), http.StatusServiceUnavailable, actors, full, slow)

		h.Set(append(checks, health.Check{Part: "list", Live: true, Ask: func(context.Context) (string, error) {
			asked.Add(1)
			<-hangs
			return "", nil
		}})...)
		late := health.Part{Part: "list", Text: "no answer within 2s"}
		want("a part hangs", h.Live(), http.StatusServiceUnavailable, actors, late)
		want("a part hangs", h.Ready(), http.StatusServiceUnavailable, actors, full, late)
		if n := asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		close(hangs)
		synctest.Wait()
		want("it has returned", h.Live(), http.StatusOK, actors, health.Part{Part: "list", OK: true})
	})
}

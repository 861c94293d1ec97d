package main

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSlowReader: who reads no events is no matter to the run, nor to those who do.
func TestSlowReader(t *testing.T) {
	skipWithoutSignals(t)
	p := start(t)
	id := p.begin(endless("model.layers=1", "model.hidden=8", "model.context=4", "batch.sequences=1", "batch.microbatch=1")...)
	for range 3 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write([]byte("GET /runs/" + id + "/events HTTP/1.1\r\nHost: service\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	// Events go on, more than the service keeps; who comes back late misses some, and is told.
	p.follow(id, "", step(3*limitEvents))
	if all := p.follow(id, "1", kind("step")); all[0].kind != "gap" || all[0].data["lost"].(float64) < limitEvents {
		t.Errorf("behind event 1 comes %+v", all[0])
	}
	p.end()
}

// TestGoneClient: an answer that nobody waits for ends.
func TestGoneClient(t *testing.T) {
	skipWithoutSignals(t)
	p := start(t)
	id := p.begin(endless()...)
	for range 2 * limitGenerating { // more than there may be at a time
		ask := `{"tokens": 4096, "stream": true}`
		req, err := http.NewRequest(http.MethodPost, p.url+"/runs/"+id+"/generate", strings.NewReader(ask))
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); ; { // until those before have noticed
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode == http.StatusOK {
				if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				break
			}
			_ = resp.Body.Close()
			if time.Now().After(end) {
				t.Fatal(resp.Status)
			}
			time.Sleep(10 * time.Millisecond)
			req.Body, _ = req.GetBody()
		}
	}
	p.end()
}

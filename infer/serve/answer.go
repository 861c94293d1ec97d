package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/chat"
)

// usage counts the tokens of a request.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// reply is an answer, or with streaming a part of one.
type reply struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

// choice has the text: Message of a chat, Delta of a streamed one, Text of a completion.
type choice struct {
	Index    int      `json:"index"`
	Message  *said    `json:"message,omitempty"`
	Delta    *said    `json:"delta,omitempty"`
	Text     *string  `json:"text,omitempty"`
	Logprobs *float64 `json:"logprobs"` // always null
	Finish   *string  `json:"finish_reason"`
}

// said is what the assistant says.
type said struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Calls   []call  `json:"tool_calls,omitempty"`
}

// wholeSaid is a whole message: its content is null if there are only calls.
type wholeSaid said

func (s *said) MarshalJSON() ([]byte, error) {
	if s.Role == "" || s.Content != nil || s.Calls == nil {
		return json.Marshal((*wholeSaid)(s))
	}
	return json.Marshal(struct {
		Role    string  `json:"role"`
		Content *string `json:"content"`
		Calls   []call  `json:"tool_calls"`
	}{s.Role, nil, s.Calls})
}

// call is a call of a function in an answer. Its arguments are JSON in a text.
type call struct {
	Index    *int   `json:"index,omitempty"` // with streaming
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// finishCalls is why an answer with calls ends.
const finishCalls = "tool_calls"

func randomID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, as its documentation says
	return prefix + hex.EncodeToString(b[:])
}

// callsOf are calls in the form of the API.
func callsOf(all []chat.Call, streamed bool) (calls []call) {
	for i, one := range all {
		c := call{ID: randomID("call_"), Type: "function"}
		c.Function.Name, c.Function.Arguments = one.Name, string(one.Arguments)
		if streamed {
			c.Index = &i
		}
		calls = append(calls, c)
	}
	return calls
}

// answer answers a request for a text.
func (s *Server) answer(ofChat bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := s.read(w, r, ofChat)
		if err != nil {
			return err
		}
		// The request is read: its deadline must not end the answer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		var report infer.GenerateReport
		q.o.Report = &report
		a := reply{ID: randomID("cmpl-"), Object: "text_completion", Created: clock.Now().Unix(), Model: s.o.Name}
		if ofChat {
			a.ID, a.Object = randomID("chatcmpl-"), "chat.completion"
		}
		if q.stream {
			err = s.streamed(r.Context(), w, q, a)
		} else {
			err = s.whole(r.Context(), w, q, a)
		}
		switch {
		case err == nil:
			s.answered.Add(1)
		case errors.Is(err, errBegun), errors.Is(err, context.Canceled) && !s.draining.Load(): // the client has disconnected
			s.refused.Add(1)
			return nil
		}
		return err
	}
}

func (q *request) counts() *usage {
	r := q.o.Report
	return &usage{r.PromptTokens, r.Tokens, r.PromptTokens + r.Tokens}
}

// whole answers when the text is complete.
func (s *Server) whole(ctx context.Context, w http.ResponseWriter, q *request, a reply) error {
	var all strings.Builder
	if err := s.model.Generate(ctx, q.o, func(b []byte) error { all.Write(b); return nil }); err != nil {
		return err
	}
	content, finish := all.String(), q.o.Report.Finish
	c := choice{Finish: &finish}
	if q.chat {
		m := &said{Role: "assistant"}
		if q.o.Tools != nil {
			var calls []chat.Call
			if content, calls = chat.ParseCalls(content, s.model.ToolMarker(q.o.Tools), q.o.Tools); calls != nil {
				m.Calls, finish = callsOf(calls, false), finishCalls
			}
		}
		if content != "" || m.Calls == nil {
			m.Content = &content
		}
		c.Message = m
	} else {
		c.Text = &content
	}
	a.Choices, a.Usage = []choice{c}, q.counts()
	s.send(w, http.StatusOK, a)
	return nil
}

package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	want := []*wire.Beat{{Number: 1}, {}, {Number: 3, Goodbye: true, Status: []*wire.StatusReply{{Attempt: []byte("x")}}}}
	for _, m := range want {
		if err := wire.WriteFrame(&b, m, 1000); err != nil {
			t.Fatal(err)
		}
	}
	text := bytes.Clone(b.Bytes())
	for _, m := range want {
		var got wire.Beat
		if err := wire.ReadFrame(&b, &got, 1000); err != nil || !proto.Equal(&got, m) {
			t.Errorf("%v: %v, want %v", err, &got, m)
		}
	}
	if err := wire.ReadFrame(&b, &wire.Beat{}, 1000); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := wire.ReadFrame(bytes.NewReader(text[:len(text)-1]), &wire.Beat{}, 1000); err != nil {
		t.Error(err)
	}
	for name, text := range map[string][]byte{
		"half a length": {1, 0},
		"half a frame":  {5, 0, 0, 0, 1},
		"too long":      binary.LittleEndian.AppendUint32(nil, 1<<31),
		"no message":    {2, 0, 0, 0, 0xff, 0xff},
	} {
		if err := wire.ReadFrame(bytes.NewReader(text), &wire.Beat{}, 1000); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := wire.WriteFrame(io.Discard, &wire.Beat{Status: []*wire.StatusReply{{Attempt: make([]byte, 1000)}}}, 1000); !errors.Is(err,
		wire.ErrFrame) {
		t.Errorf("too long to write: %v", err)
	}
}

// FuzzReadFrame: no input makes the reader fail, or allocate more than it received.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 1})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(_ *testing.T, text []byte) {
		r := bytes.NewReader(text)
		for wire.ReadFrame(r, &wire.Envelope{}, 1<<16) == nil {
		}
	})
}

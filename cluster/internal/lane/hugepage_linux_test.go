package lane

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestHugePages: the data in a slot and the states stay the same for both ends while pages become huge.
func TestHugePages(t *testing.T) {
	fd, err := unix.MemfdCreate("troupe-lane-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, sharedBytes); err != nil {
		t.Fatal(err)
	}
	sender, err := mapRegion(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer sender.close()
	receiver, err := mapRegion(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.close()
	for _, r := range []*region{sender, receiver} {
		if at := uintptr(unsafe.Pointer(&r.memory[0])); at%hugePage != 0 || len(r.memory) != sharedBytes {
			t.Fatalf("%d bytes at %#x: not at a multiple of %d", len(r.memory), at, hugePage)
		}
	}
	random := rand.NewChaCha8([32]byte{1})
	payload := make([]byte, LimitPiece)
	_, _ = random.Read(payload)
	const kept = 2 // its neighbour becomes a part of the same page
	for slot := range kept + 1 {
		if got, ok := sender.take(); got != slot || !ok {
			t.Fatalf("slot %d is taken, not %d", got, slot)
		}
	}
	sender.fill(kept, [][]byte{payload[:1000], payload[1000:]})
	for round := range 4 * hugeAfter / LimitPiece {
		slot, ok := sender.take()
		if !ok || slot != kept+1 {
			t.Fatalf("round %d: slot %d is taken, not %d", round, slot, kept+1)
		}
		length := LimitPiece - random.Uint64()%1000
		content := make([]byte, length)
		_, _ = random.Read(content)
		sender.fill(slot, [][]byte{content})
		if !bytes.Equal(receiver.slot(slot, int(length)), content) {
			t.Fatalf("round %d: the receiver has another payload", round)
		}
		if !bytes.Equal(receiver.slot(kept, LimitPiece), payload) {
			t.Fatalf("round %d: the slot beside it has changed", round)
		}
		receiver.free(slot)
	}
	if sender.used[kept*LimitPiece/hugePage] < hugeAfter || sender.used[0] != 0 {
		t.Errorf("of huge pages' places %v bytes were counted", sender.used)
	}
}

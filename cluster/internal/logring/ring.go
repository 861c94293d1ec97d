// Package logring keeps the latest log records of a cluster's processes, and passes new ones to followers.
// It knows only records, and must never know connections.
package logring

import (
	"cmp"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Limits of the kept and the waiting records.
const (
	// LimitRecords is how many records are kept, and LimitBytes bounds their size in total.
	LimitRecords = 4096
	LimitBytes   = 16 << 20
	// LimitBatches is how many batches of records may wait for a follower.
	LimitBatches = 1024

	// Limits of one record.
	limitTextBytes  = 2 << 10
	limitKeyBytes   = 256
	limitValueBytes = 2 << 10
	limitAttributes = 32
)

// Ring keeps the latest log records of a cluster's processes.
type Ring struct {
	mu        sync.Mutex
	records   []*wire.LogRecord
	bytes     int    // encoded size of all records
	dropped   uint64 // records that workers discarded because their queue was full
	followers map[*Follower]struct{}
}

// Follower gets records as they come.
type Follower struct {
	Batches chan []*wire.LogRecord // closed if the follower is too slow
}

// New makes an empty ring.
func New() *Ring { return &Ring{followers: make(map[*Follower]struct{})} }

// Add stores records and passes them to the followers. dropped is how many the sender discarded.
func (l *Ring) Add(records []*wire.LogRecord, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped += dropped
	for _, r := range records {
		l.records = append(l.records, r)
		l.bytes += proto.Size(r)
	}
	for len(l.records) > LimitRecords || l.bytes > LimitBytes {
		l.bytes -= proto.Size(l.records[0])
		l.records[0] = nil
		l.records = l.records[1:]
	}
	for f := range l.followers {
		select {
		case f.Batches <- records:
		default:
			delete(l.followers, f)
			close(f.Batches)
		}
	}
}

// Follow returns the kept records by time, and how many were dropped. With live it also returns a follower for new
// records.
func (l *Ring) Follow(live bool) (records []*wire.LogRecord, dropped uint64, f *Follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	records = inOrder(l.records)
	if live {
		f = &Follower{Batches: make(chan []*wire.LogRecord, LimitBatches)}
		l.followers[f] = struct{}{}
	}
	return records, l.dropped, f
}

// inOrder merges the records of all processes by time. The records of one process stay in the order in which they
// came, even if its clock was set back.
func inOrder(records []*wire.LogRecord) []*wire.LogRecord {
	type dated struct {
		at int64
		*wire.LogRecord
	}
	latest := make(map[string]int64)
	all := make([]dated, len(records))
	for i, r := range records {
		at := r.GetTimeNs()
		if was, ok := latest[r.GetProcess()]; ok {
			at = max(at, was)
		}
		latest[r.GetProcess()] = at
		all[i] = dated{at, r}
	}
	slices.SortStableFunc(all, func(a, b dated) int { return cmp.Compare(a.at, b.at) })
	sorted := make([]*wire.LogRecord, len(all))
	for i, d := range all {
		sorted[i] = d.LogRecord
	}
	return sorted
}

// Leave removes a follower.
func (l *Ring) Leave(f *Follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followers, f)
}

// Bound cuts a record from another process to the limits.
func Bound(r *wire.LogRecord) {
	r.Text = words.Cut(r.GetText(), limitTextBytes)
	r.Attributes = r.GetAttributes()[:min(len(r.GetAttributes()), limitAttributes)]
	for _, a := range r.Attributes {
		a.Key, a.Value = words.Cut(a.GetKey(), limitKeyBytes), words.Cut(a.GetValue(), limitValueBytes)
	}
}

// Replace returns a record in which the value of an attribute is replaced by the one that values has for it. It does not
// change the record: others may read it.
func Replace(r *wire.LogRecord, key string, values map[string]string) *wire.LogRecord {
	for i, a := range r.GetAttributes() {
		value, ok := values[a.GetValue()]
		if a.GetKey() != key || !ok {
			continue
		}
		attributes := slices.Clone(r.GetAttributes())
		attributes[i] = &wire.LogAttribute{Key: key, Value: value}
		r = &wire.LogRecord{TimeNs: r.GetTimeNs(), Level: r.GetLevel(), Process: r.GetProcess(), Text: r.GetText(), Attributes: attributes,
			OffsetNs: r.GetOffsetNs()}
	}
	return r
}

// OfRun reports whether a record is about a run.
func OfRun(r *wire.LogRecord, ids ...string) bool {
	for _, a := range r.GetAttributes() {
		if a.GetKey() == "run" && slices.Contains(ids, a.GetValue()) {
			return true
		}
	}
	return false
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// finder watches the keys of coordinators.
type finder struct {
	client *clientv3.Client
	prefix string // of the keys

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	begin    sync.Once
	watching sync.WaitGroup

	mu        sync.Mutex
	answered  bool          // etcd has answered at least once
	addresses []string      // from its last answer
	err       error         // of the last request
	changed   chan struct{} // closed and replaced when one of these changes
}

func newFinder(client *clientv3.Client, prefix string) *finder {
	f := &finder{client: client, prefix: prefix, changed: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Find returns the known addresses. It waits only for etcd's first answer.
func (f *finder) Find(ctx context.Context) ([]string, error) {
	f.begin.Do(func() {
		f.watching.Add(1)
		go func() { // ends with Close
			defer f.watching.Done()
			f.watch()
		}()
	})
	for {
		f.mu.Lock()
		answered, addresses, err, changed := f.answered, f.addresses, f.err, f.changed
		f.mu.Unlock()
		switch {
		case f.ctx.Err() != nil:
			return nil, discovery.ErrClosed
		case len(addresses) > 0:
			return slices.Clone(addresses), nil
		case err != nil:
			return nil, err
		case answered:
			return nil, fmt.Errorf("%w: etcd has no key below %s", discovery.ErrNone, f.prefix)
		}
		select {
		case <-changed:
		case <-f.ctx.Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("etcd has not answered: %w", context.Cause(ctx))
		}
	}
}

// Close stops watching. If Announce has not returned, its key stays until its lease expires.
func (f *finder) Close() error {
	f.begin.Do(func() {}) // Find starts no more watch
	f.cancel()
	f.watching.Wait()
	if err := f.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watch reads the keys, and reads them again when one changes or the watch has ended, until Close.
func (f *finder) watch() {
	for f.ctx.Err() == nil {
		err := f.read()
		if err == nil {
			continue
		}
		f.set(func() { f.err = err })
		select {
		case <-time.After(retryTime):
		case <-f.ctx.Done():
		}
	}
}

// read reads the keys and returns when they have changed or an error occurs.
func (f *finder) read() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel() // the watch
	asking, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	// The newest first: of several clusters, its coordinator is the most likely to be alive.
	r, err := f.client.Get(asking, f.prefix, clientv3.WithPrefix(), clientv3.WithLimit(limitKeys),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil {
		return fmt.Errorf("read the coordinator's address from etcd: %w", f.explain(err))
	}
	var addresses []string
	for _, kv := range r.Kvs {
		if len(kv.Value) <= discovery.LimitAddressBytes {
			addresses = append(addresses, string(kv.Value))
		}
	}
	f.set(func() { f.answered, f.addresses, f.err = true, addresses, nil })
	for w := range f.client.Watch(clientv3.WithRequireLeader(ctx), f.prefix, clientv3.WithPrefix(), clientv3.WithRev(r.Header.Revision+1)) {
		switch {
		case w.Err() != nil:
			return fmt.Errorf("watch etcd: %w", w.Err())
		case len(w.Events) > 0:
			return nil
		}
	}
	return errors.New("watch etcd: the watch has ended")
}

// explain names the servers that have not answered. etcd's client does not say why.
func (f *finder) explain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("none of the servers %s has answered within %v; check that etcd runs there, and that ca, cert and key match its TLS: %w",
			strings.Join(f.client.Endpoints(), ", "), askTime, err)
	}
	return err
}

func (f *finder) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

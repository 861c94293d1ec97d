package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

// errLeaseLost: etcd has not answered for as long as the lease, or has ended it.
var errLeaseLost = errors.New("etcd has dropped the coordinator's address: its lease has expired")

// Announce stores the coordinator's address under its cluster's key, with a lease, until ctx ends.
func (f *finder) Announce(ctx context.Context, cluster, address string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	key := f.prefix + cluster
	asking, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	lease, err := f.client.Grant(asking, int64(leaseTTL.Seconds()))
	if err == nil {
		_, err = f.client.Put(asking, key, address, clientv3.WithLease(lease.ID))
	}
	if ctx.Err() != nil {
		f.remove(lease)
		return f.ended()
	}
	if err != nil {
		f.remove(lease)
		return fmt.Errorf("store the coordinator's address in etcd: %w", f.explain(err))
	}
	alive, err := f.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		f.remove(lease)
		return fmt.Errorf("store the coordinator's address in etcd: %w", f.explain(err))
	}
	for {
		select {
		case _, ok := <-alive:
			if !ok && ctx.Err() == nil {
				return errLeaseLost
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			f.remove(lease)
			return f.ended()
		}
		f.restore(ctx, key, address, lease.ID)
	}
}

// restore writes the key again if it was removed, but not if another coordinator of this cluster has
// replaced it. It ignores errors, because the lease shows whether etcd answers.
func (f *finder) restore(ctx context.Context, key, address string, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, _ = f.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, address, clientv3.WithLease(lease))).Commit()
}

// remove ends a lease, and with it removes the key if the key still has this lease.
func (f *finder) remove(lease *clientv3.LeaseGrantResponse) {
	if lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), removeTime)
	defer cancel()
	_, _ = f.client.Revoke(ctx, lease.ID) // otherwise it expires
}

// ended returns Announce's result after its context or the Finder has ended.
func (f *finder) ended() error {
	if f.ctx.Err() != nil {
		return discovery.ErrClosed
	}
	return nil
}

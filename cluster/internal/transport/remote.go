package transport

import "github.com/asynkron/protoactor-go/remote"

// Remote is protoactor's, for its membership, which keeps there whom it does not talk to.
func (t *TCP) Remote() *remote.Remote { return t.remote }

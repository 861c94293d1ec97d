package cluster

import (
	"context"
	"time"

	"github.com/troupe-ml/troupe/internal/wire"
)

// ClusterMember is a worker, as a client sees it.
type ClusterMember struct {
	Member
	RunID string // of Run; "": none, or one that was not submitted to the coordinator
}

// Members lists the workers in the order in which they joined. now is the time on the coordinator's clock.
func (c *Client) Members(ctx context.Context) (members []ClusterMember, now time.Time, err error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Members{Members: &wire.MembersRequest{}}})
	for _, w := range m.GetMembers().GetMembers() {
		one := ClusterMember{Member: Member{Name: w.GetName(), Address: w.GetAddress(), Cores: int(w.GetCores()), MemoryBytes: w.GetMemoryBytes(),
			Kernels: w.GetKernels(), Devices: unpackDevices(w.GetDevices()), Joined: time.Unix(0, w.GetJoinedNs()),
			Heard:      time.Unix(0, w.GetHeardNs()),
			ClockAhead: time.Duration(w.GetClockAheadNs()), RoundTrip: time.Duration(w.GetRoundTripNs()), Leaving: w.GetLeaving()},
			RunID: w.GetRun()}
		for _, rank := range w.GetRanks() {
			one.Ranks = append(one.Ranks, int(rank))
		}
		members = append(members, one)
	}
	return members, time.Unix(0, m.GetMembers().GetTimeNs()), err
}

// Unreachable lists the workers that try to join, and that the coordinator refuses because it can't reach them. now is
// the time on the coordinator's clock.
func (c *Client) Unreachable(ctx context.Context) (workers []UnreachableWorker, now time.Time, err error) {
	m, err := c.ask(ctx, &wire.ApiRequest{Kind: &wire.ApiRequest_Members{Members: &wire.MembersRequest{}}})
	for _, w := range m.GetMembers().GetUnreachable() {
		workers = append(workers, UnreachableWorker{w.GetName(), w.GetAddress(), w.GetError(), time.Unix(0, w.GetAskedNs())})
	}
	return workers, time.Unix(0, m.GetMembers().GetTimeNs()), err
}

package mesh_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestGroups: the processes of an attempt have groups, which end when one of the processes is forgotten, and with the attempt.
func TestGroups(t *testing.T) {
	all := join(t, transport.NewMemory(), boss, "a")
	run, _ := over(t, all, []string{"a", "a", "a"}, func(*process) actors.Spec {
		s := smallRun(t, 3, threeRanks, &outcome{})
		s.Steps = 1 << 30
		s.OnEvent = nil
		return s
	})
	attempt := run.Attempt()
	ids := []lane.ID{lane.ID(all[0].id), lane.ID(all[1].id)}
	var members []*collective.Group
	var tensors []tensorops.Tensor
	arena := tensorops.NewHostMemory(0).NewArena("test")
	for rank, p := range all {
		g, err := p.mesh.Groups(attempt).Open("dp", ids, rank)
		if err != nil {
			t.Fatal(err)
		}
		x, err := tensorops.NewTensor(arena, tensorops.Int32, 1000)
		if err != nil {
			t.Fatal(err)
		}
		tensorops.Elements[int32](x)[999] = int32(rank + 1)
		members, tensors = append(members, g), append(tensors, x)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, second := members[0].AllReduce(tensors[0], tensorops.Sum), members[1].AllReduce(tensors[1], tensorops.Sum)
	if err := errors.Join(first.Wait(ctx), second.Wait(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := tensorops.Elements[int32](tensors[0])[999]; got != 3 {
		t.Errorf("sum %d", got)
	}
	h := members[0].Barrier()
	all[0].mesh.Forget(all[1].id)
	if err := h.Wait(ctx); !errors.Is(err, collective.ErrLeft) || !strings.Contains(err.Error(), `process "a"`) {
		t.Errorf("error %v", err)
	}
	run.Lost([]int{0, 1, 2}, errors.New("forgotten"))
	all[1].mesh.Detach(attempt)
	// or the other has told it
	if err := members[1].Barrier().Wait(ctx); !errors.Is(err, collective.ErrClosed) && !errors.Is(err, collective.ErrLeft) {
		t.Errorf("after the attempt: %v", err)
	}
	if all[1].mesh.Groups(attempt) != nil {
		t.Error("the attempt is still there")
	}
}

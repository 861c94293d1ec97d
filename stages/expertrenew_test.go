package stages_test

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestResetInExpertGroups: a step that ranks of expert groups abandon, also while others wait for their tokens, leaves no trace in the
// next attempt at it, with new groups.
func TestResetInExpertGroups(t *testing.T) {
	for name, c := range withParts {
		if raceDetector && name != "biases" {
			continue
		}
		c.Experts.AuxLossWeight = 0 // Objective would need float64
		for _, overlap := range []bool{false, true} {
			o := stages.Options{Experts: stages.ExpertParallel{Overlap: overlap}}
			dev, m := newDevice(t, 2), newModel(t, c)
			want := replicaSteps(t, dev, m, c, 4, o, 2, nothingAbandoned)
			for how := oneAbandoned; how <= failedAbandoned; how++ {
				for i, got := range replicaSteps(t, dev, m, c, 4, o, 2, how) {
					if !slices.EqualFunc(got, want[i], sameSaved) {
						t.Errorf("%s, overlap %v, abandoned %v: weights or state of rank %d differ after step %d", name, overlap, how, i%4,
							i/4+1)
					}
				}
			}
		}
	}
}

// TestShadowInExpertGroup: where an expert group has all replicas, no other rank has a rank's experts. Its shadow has its parameters, and
// saves what it saves.
func TestShadowInExpertGroup(t *testing.T) {
	for name, c := range withParts {
		m := newModel(t, c)
		specs := []stages.ChunkSpec{{Last: len(m.Symbols())}}
		for rank := range 2 {
			place := tensorops.DryGroup{Place: rank, Members: 2}
			o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: place}, Experts: stages.ExpertParallel{Group: place}}
			st, err := stages.NewStage(m, tensorops.NewDryStream(), specs, o)
			if err != nil {
				t.Fatal(err)
			}
			shadow, err := stages.NewShadow(m, tensorops.NewDryStream(), specs, o)
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[int]bool)
			for _, g := range st.Gradients() {
				at, err := shadow.Place(g)
				if err != nil {
					t.Fatal(err)
				}
				seen[at] = true
			}
			if len(seen) != shadow.Len() || len(seen) == 0 {
				t.Errorf("%s: rank %d has %d gradients for the %d parameters of its shadow", name, rank, len(seen), shadow.Len())
			}
			saves := func(s *stages.Stage) (all []string) {
				copies := tensorops.NewHostMemory(0).NewArena("saved")
				defer copies.Close()
				for _, v := range s.Save(tensorops.NewDryStream().NewList(), copies) {
					all = append(all, v.Name)
				}
				return all
			}
			if want, got := saves(st), saves(shadow.Stage()); !slices.Equal(got, want) {
				t.Errorf("%s: the shadow of rank %d saves %q, want %q", name, rank, got, want)
			}
			if err := st.Close(); err != nil {
				t.Error(err)
			}
			if err := shadow.Close(); err != nil {
				t.Error(err)
			}
			o.Experts.Group, o.Data.Group = place, tensorops.DryGroup{Place: rank, Members: 4}
			o.Experts.Copies = tensorops.DryGroup{Members: 2}
			if _, err := stages.NewShadow(m, tensorops.NewDryStream(), specs, o); err == nil {
				t.Errorf("%s: a rank with copies has a shadow", name)
			}
		}
	}
}

// TestSaveAsInExpertGroup: a rank of an expert group saves as the rank of another group with the same experts what that one saves.
func TestSaveAsInExpertGroup(t *testing.T) {
	const ranks, group = 4, 2
	dry := func(place, members int) tensorops.Group { return tensorops.DryGroup{Place: place, Members: members} }
	for name, c := range withParts {
		m := newModel(t, c)
		of := make([]*stages.Stage, ranks)
		for rank := range of {
			o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: dry(rank, ranks)},
				Experts: stages.ExpertParallel{Group: dry(rank%group, group), Copies: dry(rank/group, ranks/group)}}
			var err error
			if of[rank], err = stages.NewStage(m, tensorops.NewDryStream(), []stages.ChunkSpec{{Last: len(m.Symbols())}}, o); err != nil {
				t.Fatal(err)
			}
		}
		copies := tensorops.NewHostMemory(0).NewArena("saved")
		names := func(all []stages.Saved) (names []string) {
			for _, v := range all {
				names = append(names, v.Name)
			}
			return names
		}
		for rank, st := range of {
			other := (rank + group) % ranks
			want := names(of[other].Save(tensorops.NewDryStream().NewList(), copies))
			got := names(st.SaveAs(tensorops.NewDryStream().NewList(), copies, other, other/group))
			if !slices.Equal(got, want) || other == 0 && len(got) == 0 {
				t.Errorf("%s: as rank %d, rank %d saves %q, want %q", name, other, rank, got, want)
			}
		}
		copies.Close()
		for _, st := range of {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSaveAsWithWholeExperts: of two tensor groups with whole experts, which two consecutive ranks share, a rank saves as the one with the
// same place in the other what that one saves.
func TestSaveAsWithWholeExperts(t *testing.T) {
	dry := func(place int) tensorops.Group { return tensorops.DryGroup{Place: place, Members: 2} }
	m := newModel(t, wholeModels()["mixtral"])
	of := make([]*stages.Stage, 4)
	for rank := range of {
		o := stages.Options{Optimizer: adamw, Tensor: stages.TensorParallel{Group: dry(rank % 2)},
			Data:    stages.DataParallel{Group: dry(rank / 2)},
			Experts: stages.ExpertParallel{Group: dry(rank % 2), Copies: dry(rank / 2), Whole: true}}
		var err error
		if of[rank], err = stages.NewStage(m, tensorops.NewDryStream(), []stages.ChunkSpec{{Last: len(m.Symbols())}}, o); err != nil {
			t.Fatal(err)
		}
		defer of[rank].Close() //nolint:errcheck // a dry stage
	}
	copies := tensorops.NewHostMemory(0).NewArena("saved")
	defer copies.Close()
	names := func(all []stages.Saved) (names []string) {
		for _, v := range all {
			names = append(names, v.Name)
		}
		return names
	}
	for rank, st := range of {
		other := (rank + 2) % 4
		want := names(of[other].Save(tensorops.NewDryStream().NewList(), copies))
		got := names(st.SaveAs(tensorops.NewDryStream().NewList(), copies, other/2, other/2))
		if !slices.Equal(got, want) || other < 2 && len(got) == 0 {
			t.Errorf("as rank %d, rank %d saves %q, want %q", other, rank, got, want)
		}
	}
}

package ui

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry"
)

// modelView describes the model by stages and layers.
type modelView struct {
	Step   int         `json:"step"`  // step of the norms; 0: there are none
	Steps  []int       `json:"steps"` // steps of their history
	Layers []layerView `json:"layers"`
	Stages []stageView `json:"stages"`
	Every  *int        `json:"stats_every"`
	Traced int         `json:"traced"`    // step of the times; −1: none
	Mem    [][]int64   `json:"mem_bytes"` // by step of the history and rank
}

type layerView struct {
	Name    string    `json:"name"`
	Stage   int       `json:"stage"`
	Params  int64     `json:"params"`
	Weights []*number `json:"weight_norms"` // by step of the history
	Grads   []*number `json:"grad_norms"`
}

type stageView struct {
	Stage  int       `json:"stage"`
	Params int64     `json:"params"`
	Mem    int64     `json:"mem_bytes"`
	Share  float64   `json:"share"` // share of all ranks' busy time
	Busy   float64   `json:"busy_ms"`
	Chunks []int     `json:"chunks"`
	Shares []float64 `json:"chunk_shares"`
}

// model sends the layers with their norms from stats.jsonl, and the times of the newest recorded step.
func (s *Server) model(w http.ResponseWriter, r *http.Request, e *entry) error {
	v := modelView{Steps: []int{}, Layers: []layerView{}, Stages: []stageView{}, Traced: -1, Mem: [][]int64{}}
	stages := make(map[int]*stageView)
	at := func(stage int) *stageView {
		if stages[stage] == nil {
			stages[stage] = &stageView{Stage: stage, Chunks: []int{}, Shares: []float64{}}
		}
		return stages[stage]
	}
	if f := e.folder(); f != nil {
		f.refresh()
		f.mu.Lock()
		v.norms(f.in.Stats, f.cfg, at)
		if f.cfg != nil {
			v.Every = &f.cfg.Run.StatsEvery
		}
		f.mu.Unlock()
	}
	if p, err := e.picture(-1); err == nil {
		v.Traced = p.step
		all := 0.0
		for _, b := range p.Busy {
			all += b
		}
		for rank, b := range p.Busy {
			st := at(rank)
			st.Busy = b
			if all > 0 {
				st.Share = b / all
			}
		}
		for c, share := range p.Shares {
			st := at(p.Ranks[c])
			st.Chunks, st.Shares = append(st.Chunks, c), append(st.Shares, share)
		}
	}
	for _, st := range stages {
		v.Stages = append(v.Stages, *st)
	}
	slices.SortFunc(v.Stages, func(a, b stageView) int { return cmp.Compare(a.Stage, b.Stage) })
	return answer(w, r, v)
}

// norms adds the history of the layers in the last line.
func (v *modelView) norms(all []telemetry.Stats, cfg *config.Config, at func(stage int) *stageView) {
	if len(all) == 0 {
		return
	}
	last := all[len(all)-1]
	v.Step = last.Step
	for _, l := range last.Layers {
		one := layerView{Name: l.Name, Stage: l.Stage, Params: l.Params, Weights: make([]*number, len(all)), Grads: make([]*number, len(all))}
		v.Layers = append(v.Layers, one)
		at(l.Stage).Params += l.Params
	}
	place := make(map[string]int, len(last.Layers))
	for i, l := range last.Layers {
		place[l.Name] = i
	}
	for k, s := range all {
		v.Steps = append(v.Steps, s.Step)
		v.Mem = append(v.Mem, s.MemBytes)
		for _, l := range s.Layers {
			if i, ok := place[l.Name]; ok {
				v.Layers[i].Weights[k], v.Layers[i].Grads[k] = (*number)(l.WeightNorm), (*number)(l.GradNorm)
			}
		}
	}
	for rank, b := range last.MemBytes {
		st := at(stageOf(cfg, rank, len(last.MemBytes)))
		st.Mem = max(st.Mem, b) // of the rank with the most memory
	}
}

func (s *Server) samplesOf(w http.ResponseWriter, r *http.Request, e *entry) error {
	all := []telemetry.Sample{}
	if f := e.folder(); f != nil {
		f.refresh()
		f.mu.Lock()
		all = append(all, f.in.Samples...)
		f.mu.Unlock()
	}
	return answer(w, r, map[string]any{"samples": all})
}

package ui

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/report"
)

// keyView is a key of a configuration.
type keyView struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"` // equal to Value: the run has the default
}

// savedView is a checkpoint.
type savedView struct {
	Step    int    `json:"step"`
	Bytes   int64  `json:"bytes"`
	Written int64  `json:"written_ms"` // Unix time in milliseconds; 0: not known
	Last    bool   `json:"last"`
	Best    bool   `json:"best"`
	Weights bool   `json:"weights"` // it has the weights alone
	Problem string `json:"problem,omitempty"`
}

// setup sends a run's configuration, its folder and its checkpoints.
func (s *Server) setup(w http.ResponseWriter, r *http.Request, e *entry) error {
	keys, saved, folder := []keyView{}, []savedView{}, ""
	if f := e.folder(); f != nil {
		f.refresh()
		for _, k := range f.entries() {
			keys = append(keys, keyView(k))
		}
		var err error
		if saved, err = f.checkpoints(); err != nil {
			return err
		}
		folder = e.path()
	}
	return answer(w, r, map[string]any{"folder": folder, "keys": keys, "checkpoints": saved})
}

// entries returns the keys of the configuration.
func (f *files) entries() []config.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys
}

// checkpoints describes the run's checkpoints. It reads only their small files.
func (f *files) checkpoints() ([]savedView, error) {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return nil, errOver
	}
	store, err := checkpoint.OpenStore(f.fsys, ".")
	if err != nil {
		return nil, err
	}
	steps, err := store.Steps()
	if err != nil {
		return nil, err
	}
	last, hasLast, err := store.Last()
	best, hasBest, err2 := store.Best()
	weights, only, err3 := store.BestWeights()
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	all := []savedView{}
	add := func(v savedView, look *checkpoint.Look, err error) {
		switch {
		case errors.Is(err, checkpoint.ErrNone):
			return // an active run has removed it
		case err != nil:
			v.Problem = err.Error()
		case len(look.Problems) > 0:
			v.Problem = look.Problems[0].String()
		}
		if err == nil {
			v.Bytes = look.Bytes
			if !look.Written.IsZero() {
				v.Written = look.Written.UnixMilli()
			}
		}
		all = append(all, v)
	}
	for _, step := range steps {
		look, err := store.Look(step, rundir.TrainerFile)
		add(savedView{Step: step, Last: hasLast && step == last, Best: hasBest && !only && step == best}, look, err)
	}
	if only {
		look, err := store.LookBest(weights, rundir.TrainerFile)
		add(savedView{Step: weights, Best: true, Weights: true}, look, err)
	}
	return all, nil
}

// rateView compares the learning rate of the coming steps with that after a change.
type rateView struct {
	Peak  number   `json:"peak"` // after the step
	Floor number   `json:"floor"`
	Decay string   `json:"decay"`
	Steps []int64  `json:"steps"`
	Now   []number `json:"now"`  // rate of each of the steps
	Then  []number `json:"then"` // the same after the change
}

// ratePoints is the number of steps of a rateView.
const ratePoints = 5

// rate sends the learning rate of some steps after a step, and what it would be with another peak and floor:
// ?step=500&lr=1e-4&min_lr=1e-5. Without a peak both are equal.
func (s *Server) rate(w http.ResponseWriter, r *http.Request, e *entry) error {
	f := e.folder()
	cfg := e.config()
	if f == nil || cfg == nil {
		return refuse(http.StatusNotFound, "this server cannot read the run's configuration")
	}
	step := int64(e.describe().Step)
	q := r.URL.Query()
	if text := q.Get("step"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > config.MaxSteps {
			return refuse(http.StatusBadRequest, "step = %.40q is not a step", text)
		}
		step = max(step, n)
	}
	f.mu.Lock()
	changes, err := f.in.ReadChanges()
	f.mu.Unlock()
	if err != nil {
		return err
	}
	now := attempt.RateAfter(cfg, changes, step)
	then := now
	for key, to := range map[string]*float64{"lr": &then.LR, "min_lr": &then.MinLR} {
		if text := q.Get(key); text != "" {
			if *to, err = strconv.ParseFloat(text, 64); err != nil || !(*to >= 0 && *to <= 1e6) {
				return refuse(http.StatusBadRequest, "%s = %.40q is not a learning rate", key, text)
			}
		}
	}
	v := rateView{Peak: number(now.LR), Floor: number(now.MinLR), Decay: now.Decay, Steps: []int64{}, Now: []number{}, Then: []number{}}
	end := max(step+1, int64(cfg.Run.Steps))
	for i := range int64(ratePoints) {
		at := step + 1 + i*(end-step-1)/(ratePoints-1)
		if n := len(v.Steps); n > 0 && v.Steps[n-1] == at {
			continue
		}
		v.Steps = append(v.Steps, at)
		v.Now, v.Then = append(v.Now, number(now.At(at))), append(v.Then, number(then.At(at)))
	}
	return answer(w, r, v)
}

// difference is a key whose values differ between runs.
type difference struct {
	Key    string   `json:"key"`
	Values []string `json:"values"` // by run; "": it does not have the key
}

// diff compares runs: ?runs=ID,ID.
func (s *Server) diff(w http.ResponseWriter, r *http.Request) error {
	ids := strings.Split(r.URL.Query().Get("runs"), ",")
	if len(ids) > limitCompared {
		return refuse(http.StatusBadRequest, "comparing %d runs: the limit is %d", len(ids), limitCompared)
	}
	all := make([][]config.Entry, len(ids))
	var runs []*report.Run
	for i, id := range ids {
		e := s.run(id)
		if e == nil {
			return refuse(http.StatusNotFound, "no run has the id %.40q", id)
		}
		all[i] = e.keys()
		if path := e.path(); path != "" {
			if one, err := report.Read(path); err == nil { // else the list of runs reports the error
				runs = append(runs, one)
			}
		}
	}
	remarks, bits := []string{}, []number{}
	if t := report.Tabulate(runs); len(runs) == len(ids) {
		remarks = append(remarks, t.Remarks...)
		for _, row := range t.Rows {
			if t.Vocabs {
				bits = append(bits, number(row.BitsPerByte))
			}
		}
	}
	return answer(w, r, map[string]any{"differences": differences(all), "remarks": remarks, "bits_per_byte": bits})
}

// keys returns the keys of a run's configuration.
func (e *entry) keys() []config.Entry {
	f := e.folder()
	if f == nil {
		return nil
	}
	f.refresh()
	return f.entries()
}

// differences returns the keys whose values differ between configurations. A default that follows from another key
// that differs is left out.
func differences(all [][]config.Entry) []difference {
	var order []string
	values := make(map[string][]string)
	given := make(map[string]bool)
	for i, keys := range all {
		for _, k := range keys {
			if values[k.Key] == nil {
				values[k.Key] = make([]string, len(all))
				order = append(order, k.Key)
			}
			values[k.Key][i] = k.Value
			given[k.Key] = given[k.Key] || !k.IsDefault()
		}
	}
	out := []difference{}
	for _, key := range order {
		v := values[key]
		if given[key] && slices.ContainsFunc(v, func(s string) bool { return s != v[0] }) {
			out = append(out, difference{key, v})
		}
	}
	return out
}

// keyValue is a key with its value.
type keyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ownColumns are keys that the list of runs shows in other columns.
var ownColumns = []string{"run.name", "run.out", "run.steps", "optimizer.lr"}

// limitDiffers bounds the keys that distinguish a run in the list of runs.
const limitDiffers = 8

// differing returns, for each run, the keys that distinguish it from the other runs.
func differing(entries []*entry) map[*entry][]keyValue {
	all := make([][]config.Entry, 0, len(entries))
	of := make([]*entry, 0, len(entries))
	for _, e := range entries {
		if keys := e.keys(); len(keys) > 0 {
			all, of = append(all, keys), append(of, e)
		}
	}
	out := make(map[*entry][]keyValue)
	for _, d := range differences(all) {
		if slices.Contains(ownColumns, d.Key) {
			continue
		}
		for i, v := range d.Values {
			if e := of[i]; v != "" && len(out[e]) < limitDiffers {
				out[e] = append(out[e], keyValue{d.Key, v})
			}
		}
	}
	return out
}

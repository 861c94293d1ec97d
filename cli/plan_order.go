package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// orderReport is a schedule in Megatron-Core's terms, in the form of its JSON.
type orderReport struct {
	Schedule     string `json:"schedule,omitempty"` // "": a table from a file
	Chunks       int    `json:"chunks"`             // total of all ranks
	Microbatches int    `json:"microbatches"`
	// ScheduleTable lists the virtual microbatches in the order of every rank's forwards; null: the ranks have different orders.
	ScheduleTable *orderTable `json:"schedule_table"`
	Ranks         []orderRank `json:"ranks"`
}

// orderTable has one entry per virtual microbatch.
type orderTable struct {
	Microbatch []int `json:"microbatch"`
	Chunk      []int `json:"chunk"` // numbered within its rank
}

// orderRank is a rank of the pipeline.
type orderRank struct {
	Rank      int             `json:"rank"`
	Total     int             `json:"total"`     // virtual microbatches
	WarmUp    *int            `json:"warm_up"`   // null: not defined for this schedule
	Remaining *int            `json:"remaining"` // null: not defined for this schedule
	Order     []int           `json:"order"`
	Transfers []orderTransfer `json:"transfers,omitempty"`
}

// orderTransfer has the types and shapes of the tensors that a chunk exchanges for a microbatch.
type orderTransfer struct {
	Chunk        int      `json:"chunk"`
	RecvForward  []string `json:"recv_forward"`
	SendForward  []string `json:"send_forward"`
	RecvBackward []string `json:"recv_backward"`
	SendBackward []string `json:"send_backward"`
}

// orderOf describes a table. spec counts only if a schedule made the table.
func orderOf(t *scheduler.Table, spec scheduler.Spec) (*orderReport, error) {
	r := &orderReport{Schedule: t.Schedule, Chunks: t.NumChunks, Microbatches: t.Microbatches}
	var virtual []scheduler.VirtualMicrobatch
	if t.Schedule != "" {
		if spec.Schedule = t.Schedule; spec.Chunks == 0 {
			spec.Chunks = scheduler.DefaultChunks(spec.Schedule)
		}
		virtual, _ = spec.VirtualMicrobatches() // an error means that the schedule has no such table
	}
	if virtual != nil {
		r.ScheduleTable = &orderTable{}
		for _, v := range virtual {
			r.ScheduleTable.Microbatch = append(r.ScheduleTable.Microbatch, v.Microbatch)
			r.ScheduleTable.Chunk = append(r.ScheduleTable.Chunk, v.LocalChunk)
		}
	}
	for rank, row := range t.Ranks {
		order, err := t.MegatronOrder(rank)
		if err != nil {
			return nil, err
		}
		k := orderRank{Rank: rank, Order: order}
		for _, a := range row {
			if a.Type == scheduler.F {
				k.Total++
			}
		}
		if virtual != nil {
			if n, err := spec.RankMicrobatches(rank); err == nil {
				k.WarmUp, k.Remaining = &n.WarmUp, &n.Remaining
			}
		}
		r.Ranks = append(r.Ranks, k)
	}
	return r, nil
}

// planOrder describes a config's table. It measures nothing.
func (a *app) planOrder(cmd *cobra.Command, cfg *config.Config, d drawing) error {
	if err := errors.Join(idle(cmd, "with --order, which measures nothing", append([]string{"device", "columns"}, measuringFlags...)...),
		d.textOrJSON("--order")); err != nil {
		return err
	}
	a.working = true
	p, err := plan.Resolve(cfg, nil)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	r, err := orderOf(p.Table(), p.Spec())
	if err != nil {
		return &troupe.SetupError{Err: cfg.Errorf("pipeline.schedule", "--order: %w", err)}
	}
	for rank := range r.Ranks {
		all, err := p.Transfers(rank)
		if err != nil {
			return &troupe.SetupError{Err: err}
		}
		for _, x := range all {
			r.Ranks[rank].Transfers = append(r.Ranks[rank].Transfers, orderTransfer{x.Chunk, shapeTexts(x.RecvForward), shapeTexts(x.SendForward),
				shapeTexts(x.RecvBackward), shapeTexts(x.SendBackward)})
		}
	}
	return r.writeTo(a, d)
}

func shapeTexts(shapes []stages.Shape) []string {
	all := make([]string, 0, len(shapes))
	for _, s := range shapes {
		all = append(all, fmt.Sprintf("%v%d", s.DType, s.Dims))
	}
	return all
}

func (r *orderReport) writeTo(a *app, d drawing) error {
	return d.write(a, func(w io.Writer) error {
		if d.format == "json" {
			return writeJSON(w, r)
		}
		return r.text(w)
	})
}

// text writes the report for people.
func (r *orderReport) text(w io.Writer) error {
	name := r.Schedule
	if name == "" {
		name = "a table from a file"
	}
	p := &planText{w: w}
	p.printf("%s, %s, %s, %s\n\n", name, words.Plural(len(r.Ranks), "rank"), words.Plural(r.Chunks, "chunk"),
		words.Plural(r.Microbatches, "microbatch"))
	switch s := r.ScheduleTable; {
	case s != nil:
		p.scheduleTable(s)
	case r.Schedule == "":
		p.printf("a table from a file does not say which forwards are warm-up\n")
	default:
		p.printf("the ranks run their forwards in different orders, so there is no schedule table and no warm-up\n")
	}
	p.printf("\n")
	p.columns(func(t io.Writer) {
		fmt.Fprintln(t, "RANK\tTOTAL\tWARM-UP\tREMAINING\tORDER")
		for _, k := range r.Ranks {
			fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\n", k.Rank, k.Total, number(k.WarmUp), number(k.Remaining), strings.Trim(fmt.Sprint(k.Order), "[]"))
		}
	})
	if r.Ranks[0].Transfers == nil {
		return p.err
	}
	p.printf("\n")
	p.columns(func(t io.Writer) {
		fmt.Fprintln(t, "RANK\tCHUNK\tRECV FORWARD\tSEND FORWARD\tRECV BACKWARD\tSEND BACKWARD")
		for _, k := range r.Ranks {
			for _, x := range k.Transfers {
				fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\n", k.Rank, x.Chunk, tensors(x.RecvForward), tensors(x.SendForward), tensors(x.RecvBackward),
					tensors(x.SendBackward))
			}
		}
	})
	return p.err
}

// scheduleTable writes Megatron-Core's schedule table, one column per virtual microbatch.
func (p *planText) scheduleTable(s *orderTable) {
	p.columns(func(t io.Writer) {
		line := func(name string, of func(i int) int) {
			fmt.Fprint(t, name)
			for i := range s.Microbatch {
				fmt.Fprintf(t, "\t%d", of(i))
			}
			fmt.Fprintln(t)
		}
		line("virtual microbatch", func(i int) int { return i })
		line("microbatch", func(i int) int { return s.Microbatch[i] })
		line("chunk", func(i int) int { return s.Chunk[i] })
	})
}

// columns aligns tab-separated lines.
func (p *planText) columns(write func(io.Writer)) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	write(t)
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

// number formats a number, or "-" if it is missing.
func number(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// tensors lists types and shapes.
func tensors(shapes []string) string {
	if len(shapes) == 0 {
		return "-"
	}
	return strings.Join(shapes, ", ")
}

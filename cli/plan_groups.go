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
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
)

// groupsReport is the grid of a config's ranks, in the form of its JSON.
type groupsReport struct {
	World int          `json:"world"`
	Order string       `json:"order"`
	Text  string       `json:"text"`
	Ranks []groupsRank `json:"ranks"`
	Edges []string     `json:"edges,omitempty"` // how tensors travel from one stage to another
	dims  []grid.Dimension
}

// groupsRank is the place of a rank in the grid, with the ranks of its groups (itself included).
type groupsRank struct {
	Rank        int              `json:"rank"`
	Coordinates map[string]int   `json:"coordinates"` // by dimension: tp, cp, pp, dp; with expert groups ep and edp
	Groups      map[string][]int `json:"groups"`      // by dimension
}

// mostGroupMembers bounds the total length of the lists of ranks: each rank has one list per dimension.
const mostGroupMembers = 1 << 22

// planGroups prints the place and the groups of every rank. It measures nothing.
func (a *app) planGroups(cmd *cobra.Command, cfg *config.Config, d drawing) error {
	if err := idle(cmd, "with --groups, which measures nothing", measuringFlags...); err != nil {
		return err
	}
	if err := d.textOrJSON("--groups"); err != nil {
		return err
	}
	a.working = true
	g, err := grid.New(cfg.GridSizes())
	if err != nil {
		return &troupe.SetupError{Err: cfg.Errorf("parallel.order", "%w", err)}
	}
	r, err := groupsOf(g)
	if err != nil {
		return err
	}
	if r.Edges, err = edgesOf(cfg, g); err != nil {
		return err
	}
	return d.write(a, func(w io.Writer) error {
		if d.format == "json" {
			return writeJSON(w, r)
		}
		return r.write(w)
	})
}

func groupsOf(g *grid.Grid) (*groupsReport, error) {
	members := 0
	for _, dim := range g.Shown() {
		members += g.World() * g.Size(dim)
	}
	if members > mostGroupMembers {
		return nil, fmt.Errorf("--groups: the groups of %v, for each of %d ranks, have %d members in total; the limit is %d", g,
			g.World(), members, mostGroupMembers)
	}
	r := &groupsReport{World: g.World(), Order: g.Order(), Text: g.Describe(), dims: g.Shown()}
	found := make(map[string][]int) // ranks of the same group share its list
	for rank := range g.World() {
		k := groupsRank{rank, make(map[string]int), make(map[string][]int)}
		for _, dim := range g.Shown() {
			k.Coordinates[dim.String()] = g.At(rank, dim)
			key := g.Name(rank, dim)
			if found[key] == nil {
				found[key] = g.Group(rank, dim)
			}
			k.Groups[dim.String()] = found[key]
		}
		r.Ranks = append(r.Ranks, k)
	}
	return r, nil
}

// write prints a table of the dimensions that have more than one rank.
func (r *groupsReport) write(w io.Writer) error {
	var dims []string
	for _, dim := range r.dims {
		for _, k := range r.Ranks {
			if len(k.Groups[dim.String()]) > 1 {
				dims = append(dims, dim.String())
				break
			}
		}
	}
	_, err := fmt.Fprintln(w, r.Text)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "RANK"
	for _, dim := range dims {
		head += "\t" + strings.ToUpper(dim)
	}
	for _, dim := range dims {
		head += "\t" + strings.ToUpper(dim) + " GROUP"
	}
	_, e := fmt.Fprintln(t, head)
	err = errors.Join(err, e)
	for _, k := range r.Ranks {
		line := fmt.Sprint(k.Rank)
		for _, dim := range dims {
			line += fmt.Sprintf("\t%d", k.Coordinates[dim])
		}
		for _, dim := range dims {
			line += "\t" + fewRanks(k.Groups[dim])
		}
		_, e := fmt.Fprintln(t, line)
		err = errors.Join(err, e)
	}
	err = errors.Join(err, t.Flush())
	for _, line := range r.Edges {
		_, e := fmt.Fprintln(w, line)
		err = errors.Join(err, e)
	}
	return err
}

// edgesOf describes how tensors travel from the ranks of one stage to those of another.
func edgesOf(cfg *config.Config, g *grid.Grid) ([]string, error) {
	p := cfg.Pipeline
	way, err := grid.ParseWay(cfg.Parallel.Edges)
	if err != nil {
		return nil, &troupe.SetupError{Err: cfg.Errorf("parallel.edges", "%w", err)}
	}
	chunks, ok := scheduler.StagesOf(p.Schedule, p.Stages, p.Chunks)
	if !ok { // only the table knows the chunks; neighboring stages exist in any case
		for stage := range p.Stages {
			chunks = append(chunks, stage)
		}
	}
	return g.DescribeEdges(chunks, cfg.Parallel.Sequence, way), nil
}

// fewRanks lists ranks; of more than 8 it lists the first ones and the last.
func fewRanks(ranks []int) string {
	const most = 8
	var all []string
	for i, r := range ranks {
		if len(ranks) > most && i >= most-2 && i < len(ranks)-1 {
			if i == most-2 {
				all = append(all, "…")
			}
			continue
		}
		all = append(all, fmt.Sprint(r))
	}
	text := strings.Join(all, " ")
	if len(ranks) > most {
		text += fmt.Sprintf(" (%d)", len(ranks))
	}
	return text
}

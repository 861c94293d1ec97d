// Package draw draws timelines of ranks and their actions: as text, as a picture, as an interactive page, as a trace
// for Perfetto, and as numbers. It must not depend on actors, files or flags, so that the same code draws plans and
// measured runs.
//
// # A chart
//
// A [Chart] is one timeline. It has a [Lane] for each rank, with the rank's actions in the order of their starts, and
// their times. [FromTimeline] makes a chart of a simulated table, [FromStep] charts of a measured step. Neither
// copies the actions. [Chart.Figures] computes busy and idle time, bubble and peaks from the actions, with the
// definitions of package scheduler, so that a plan and a run can be compared.
//
// The functions take any number of charts and draw them below each other, such as a plan above the measured run.
// Charts in the same unit share their scale.
//
// # The formats
//
//   - [ASCII] writes text: a column for each unit of time, or scaled columns if
//     the times have no common unit.
//   - [SVG] writes a complete picture.
//   - [Picture] writes the same picture as an element for a page.
//   - [HTML] writes a complete page: an interactive drawing with zoom and a
//     microbatch's path through the ranks, and the times of each rank.
//   - [Perfetto] writes a trace for Perfetto, in its protobuf format.
//   - [Summary] writes the numbers of a table as JSON, with the table itself.
//
// All but the last two are for people and refuse too many actions, see [MaxBoxes] and [MaxCells]. The last two take
// tables of any size.
package draw

// Package draw shows when each rank computed what: as text, as a picture, as a page to look around
// in, as a trace for Perfetto, and as figures. The package must never know of actors, files or
// flags, so that a plan and a measured run are drawn by the same code.
//
// # A chart
//
// A [Chart] is one timeline: a [Lane] for each rank, with its actions in the order of
// their starts and the times of each. [FromTimeline] makes one of a simulated table;
// whoever has measured a run fills one in. Neither copies the actions. Busy and idle
// time, bubble and peaks are not part of the input: [Chart.Figures] takes them from
// the actions and their times, by the definitions of scheduler, so that a plan and a
// run can be compared.
//
// Every function here takes any number of charts and shows them one above the other,
// the plan above the run that followed it. Charts in the same unit share their scale.
//
// # The formats
//
//   - [ASCII] writes text: a column for each unit of time, or scaled columns where
//     the times have no common unit.
//   - [SVG] writes a picture that stands alone.
//   - [Picture] writes the same picture as an element of somebody's page.
//   - [HTML] writes a page that stands alone: the same picture, with zoom, a
//     microbatch's way through the ranks, and each rank's figures.
//   - [Perfetto] writes a trace for Perfetto, in its protobuf format.
//   - [Summary] writes the figures of a table as JSON, with the table itself.
//
// All but the last two are for eyes and refuse more actions than eyes can use, see
// [MaxBoxes] and [MaxCells]. Those take a table of any size.
package draw

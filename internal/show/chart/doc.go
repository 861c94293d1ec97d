// Package chart draws curves as parts of a page: a Chart is a figure with a picture in SVG, a Spark
// a picture as large as a word. They need the page to have Style, and no script. A picture is as
// wide as there is room, and its letters stay as large as the page's; it follows the reader's
// choice of light or dark. Lines are told apart by their dashes and names, not by colour alone, and
// each picture says in words what it shows.
//
// What is written is escaped, refers to nothing outside of the page, and is the same for the same
// input. The package must never know what the curves are of.
package chart

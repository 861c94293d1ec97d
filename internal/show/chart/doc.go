// Package chart draws curves for HTML pages: a Chart is a figure with an SVG picture, and Spark draws one of the size
// of a word. The page must include Style; it needs no script. A picture uses the available width, keeps the page's
// font size, and follows the reader's choice of light or dark. Lines differ by dashes and names, not only by color,
// and each picture has a description in words.
//
// The output is escaped, refers to nothing outside the page, and depends only on the input. The package must not
// depend on the meaning of the curves.
package chart

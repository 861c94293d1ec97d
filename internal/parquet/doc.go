// Package parquet reads the rows of Parquet files as JSON objects, a line each, so that whatever reads JSON lines reads
// tables, too.
//
// [Open] checks the footer, [Reader.Next] returns rows in order. Lists become arrays, structs and maps objects; the
// column of a value gives its name. Columns of bytes, such as images, are refused by name: a line of JSON has no bytes.
//
// github.com/parquet-go/parquet-go decodes the pages. It trusts the lengths that a file states, so the package checks
// them first: a walk over the footer (thrift.go) and over the headers of the pages (pages.go) bounds every allocation
// by the file's size and by limits.go. A panic of the decoder over damaged data becomes an error.
//
// The package must never know what the rows mean: a document, a sample or a split.
package parquet

package parquet

const (
	// limitFooterBytes bounds the footer, which describes every column of every row group.
	limitFooterBytes = 64 << 20
	// limitFooterElements bounds the elements of all lists in a footer: memory for each is some hundred bytes.
	limitFooterElements = 1 << 20
	// limitDepth bounds how deep structs are nested in a footer or a page's header.
	limitDepth = 16
	// limitPageBytes bounds a page, compressed and decompressed. Writers aim at a mebibyte.
	limitPageBytes = 256 << 20
	// limitPageValues bounds the values of a page: nulls take no bytes of it.
	limitPageValues = 16 << 20
	// limitHeaderBytes bounds the header of a page, which may hold its smallest and its largest value.
	limitHeaderBytes = 16 << 20
	// limitRowBytes bounds a row as JSON.
	limitRowBytes = 64 << 20
	// limitColumns bounds the columns that are read.
	limitColumns = 4096
)

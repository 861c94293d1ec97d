// The tests of the page in a real browser: a module of its own, so that what they need is no
// dependency of the engine.
module github.com/troupe-ml/troupe/ui/test

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/troupe-ml/troupe v0.0.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/troupe-ml/troupe => ../..

package ui

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/telemetry"
)

//go:embed page
var pageFiles embed.FS

// assets are the page's files by name, with the scripts that draw a step.
var assets = func() map[string][]byte {
	all := make(map[string][]byte)
	for _, files := range []embed.FS{draw.BrowserFiles, pageFiles} {
		entries, err := files.ReadDir("page")
		if err != nil {
			panic(err) // the files are embedded
		}
		for _, e := range entries {
			if all[e.Name()], err = files.ReadFile("page/" + e.Name()); err != nil {
				panic(err)
			}
		}
	}
	all["figures.js"] = figuresScript()
	return all
}()

// figuresScript returns the page's copy of telemetry.Figures.
func figuresScript() []byte {
	type figure struct {
		Name    string         `json:"name"`
		Unit    telemetry.Unit `json:"unit"`
		Title   string         `json:"title"`
		Help    string         `json:"help"`
		Chart   string         `json:"chart"` // name of the figure whose chart shows it
		Line    string         `json:"line"`
		Zero    bool           `json:"zero"`
		Machine bool           `json:"machine"`
	}
	var all []figure
	for _, f := range telemetry.Figures {
		all = append(all, figure{f.Name, f.Unit, f.Title, f.Help, cmp.Or(f.Chart, f.Name), f.Line, f.Zero, f.Machine})
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings and booleans can be marshaled
	}
	return fmt.Appendf(nil, "export const figures = %s;\n", text)
}

const indexName = "index.html"

func (s *Server) page(w http.ResponseWriter, r *http.Request) { s.file(w, r, indexName) }

func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == indexName || assets[name] == nil {
		s.fail(w, refuse(http.StatusNotFound, "no such file of the page: %.60q", name))
		return
	}
	s.file(w, r, name)
}

// file sends a file of the page. Browsers must revalidate it each time, since another version of the program may
// answer.
func (s *Server) file(w http.ResponseWriter, r *http.Request, name string) {
	kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8",
		".svg": "image/svg+xml"}
	kind := kinds[path.Ext(name)]
	if kind == "" {
		kind = mime.TypeByExtension(path.Ext(name))
	}
	tag := `"` + idOf(string(assets[name])) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	if slices.Contains(strings.Split(r.Header.Get("If-None-Match"), ", "), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_ = send(w, r, kind, assets[name]) // the client may have disconnected
}

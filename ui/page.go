package ui

import (
	"embed"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
)

//go:embed page
var pageFiles embed.FS

// assets are the page's files by their names.
var assets = func() map[string][]byte {
	all := make(map[string][]byte)
	entries, err := pageFiles.ReadDir("page")
	if err != nil {
		panic(err) // they are in the program
	}
	for _, e := range entries {
		if all[e.Name()], err = pageFiles.ReadFile("page/" + e.Name()); err != nil {
			panic(err)
		}
	}
	return all
}()

const indexName = "index.html"

func (s *Server) page(w http.ResponseWriter, r *http.Request) { s.file(w, r, indexName) }

func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == indexName || assets[name] == nil {
		s.fail(w, refuse(http.StatusNotFound, "the page has no file %.60q", name))
		return
	}
	s.file(w, r, name)
}

// file sends a file of the page. A browser asks again each time: another program may be there.
func (s *Server) file(w http.ResponseWriter, r *http.Request, name string) {
	kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".svg": "image/svg+xml"}
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
	_ = send(w, r, kind, assets[name]) // to a client that may have gone
}

package corpus

import (
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-ml/troupe/config"
)

// warnings returns the warnings about the documents of a key since the last call. Documents whose
// ids a run has stored are not read again, so there are no warnings about them. chosen: the user has set
// data.special_tokens.
func (r *documentReader) warnings(key string, chosen bool) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = noted{}
	if seen.names > 0 && (r.plain || !chosen) {
		all = append(all, namesWarning(seen.names, key, r.plain))
	}
	ended := 0
	for _, n := range seen.ends {
		ended += n
	}
	if n := seen.answers - ended; n > 0 {
		all = append(all,
			fmt.Sprintf("%d of %d answers in %s do not end with an end token: a model trained on them does not learn to stop. Use a chat template that ends each answer with a special token", n, seen.answers, key))
	}
	var unknown []int32
	for id := range maps.Keys(seen.ends) {
		if !slices.Contains(r.Talk.Ends, id) {
			unknown = append(unknown, id)
		}
	}
	slices.Sort(unknown)
	for _, id := range unknown {
		name, _ := r.tok.Token(id)
		all = append(all,
			fmt.Sprintf("%d of %d answers in %s end with %q (id %d), but the model's files do not list it as an end token (eos_token_id): engine generate stops at it with --chat and --messages, and an export lists it", seen.ends[id], seen.answers, key, name, id))
	}
	return all
}

// namesWarning warns that names of special tokens are read as tokens, or as text.
func namesWarning(n int, key string, plain bool) string {
	names := fmt.Sprintf("%d names of special tokens in %s are", n, key)
	if n == 1 {
		names = fmt.Sprintf("1 name of a special token in %s is", key)
	}
	as, other := config.SpecialAsTokens, config.SpecialAsText
	if plain {
		as, other = other, as
	}
	return fmt.Sprintf("%s read as %s; set data.special_tokens = %q to read them as %s", names, as, other, other)
}

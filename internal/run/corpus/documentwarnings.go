package corpus

import (
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-ml/troupe/config"
)

// warnings says what was noted in the documents of a key since the last time, and forgets it. Documents whose
// ids a run has kept from its first start are not read again, and nothing is noted of them. chosen: a person has
// said what names of special tokens are.
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
			fmt.Sprintf("after %d of %d answers in %s no token that ends a text follows: a model trained on them does not learn to stop. Use a chat template that ends each answer with a special token", n, seen.answers, key))
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
			fmt.Sprintf("%d of %d answers in %s end with %q (id %d), which the model's files do not name as an end token (eos_token_id): engine generate stops there with --chat and --messages, and an export names it", seen.ends[id], seen.answers, key, name, id))
	}
	return all
}

// namesWarning says what is done with the names of special tokens.
func namesWarning(n int, key string, plain bool) string {
	names := fmt.Sprintf("%d names of special tokens in %s are", n, key)
	if n == 1 {
		names = fmt.Sprintf("1 name of a special token in %s is", key)
	}
	as, other := config.SpecialAsTokens, config.SpecialAsText
	if plain {
		as, other = other, as
	}
	return fmt.Sprintf("%s taken as %s; set data.special_tokens = %q if they are %s", names, as, other, other)
}

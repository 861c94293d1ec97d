package chat

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// Names are the keys of a message's role and content. An empty name is "role" or "content", or in a message that has
// neither, "from" or "value", as in files of ShareGPT.
type Names struct{ Role, Content string }

// roles are the names of roles in data sets, and what they stand for.
var roles = map[string]string{
	"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant",
	"bing": "assistant", "bard": "assistant", "model": "assistant", "bot": "assistant", "tool": "tool", "observation": "tool",
}

// ParseNamed is ParseMessages for messages whose keys have other names. Under such a key, a role may have the name of another
// program, such as "human" or "gpt".
func ParseNamed(data []byte, names Names) ([]Message, error) {
	return parseMessages(data, func(all fields) (Message, error) {
		role := all.rename(names.Role, "role", "from")
		all.rename(names.Content, "content", "value")
		if role != "role" {
			if err := all.role(role); err != nil {
				return Message{}, err
			}
		}
		return parseMessage(all)
	})
}

// rename gives the member with a name, or without one the member named other, the key want unless there is one. It
// returns the name that the
// member had.
func (all fields) rename(name, want, other string) string {
	has := func(key string) int { return slices.IndexFunc(all, func(f field) bool { return f.key == key }) }
	if name == "" {
		if name = want; has(want) < 0 {
			name = other
		}
	}
	at := has(name)
	if name == want || at < 0 {
		return want
	}
	if clash := has(want); clash >= 0 { // what the template would see as the role or the content is something else
		all[clash].key = "_" + want
	}
	all[at].key = want
	return name
}

// role replaces the name of a role.
func (all fields) role(key string) error {
	for i, f := range all {
		var name string
		if f.key != "role" || json.Unmarshal(f.value, &name) != nil {
			continue
		}
		if roles[name] == "" {
			return fmt.Errorf("its %s is %s; use system, user or human, assistant or gpt, or tool. Tool calls need \"messages\" with tool_calls",
				strictjson.Quote(key), strictjson.Quote(name))
		}
		all[i].value = asJSON(roles[name])
	}
	return nil
}

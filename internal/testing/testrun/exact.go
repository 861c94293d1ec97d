package testrun

// Families are the keys that make smallRun a model of each family.
var Families = map[string][]string{
	"gpt2":  {"model.family=gpt2"},
	"llama": {"model.family=llama", "model.kv_heads=2"},
}

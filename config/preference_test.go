package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

func TestPreference(t *testing.T) {
	const docs = "data = {train = ['a.jsonl'], format = 'documents'}\n"
	for text, want := range map[string]*stages.Preference{
		"":                        nil,
		"preference.loss = 'dpo'": {Loss: stages.DPO, Beta: 0.1, Gamma: 0.5, DesirableWeight: 1, UndesirableWeight: 1},
		"preference = {loss = 'dpo', beta = 0.3, label_smoothing = 0.1}": {Loss: stages.DPO, Beta: 0.3, LabelSmoothing: 0.1, Gamma: 0.5,
			DesirableWeight: 1, UndesirableWeight: 1},
		"preference = {loss = 'simpo', gamma = 1.5}": {Loss: stages.SimPO, Beta: 2, Gamma: 1.5, DesirableWeight: 1, UndesirableWeight: 1},
		"preference = {loss = 'kto', desirable_weight = 1.2, undesirable_weight = 0.0}": {Loss: stages.KTO, Beta: 0.1, Gamma: 0.5,
			DesirableWeight: 1.2},
	} {
		if got := parse(t, text+"\n"+docs).PreferenceLoss(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	if c := parse(t, docs+"preference.loss = 'dpo'\nbatch.sequences = 6"); c.Batch.Microbatch != 2 {
		t.Errorf("6 sequences are in microbatches of %d, want 2", c.Batch.Microbatch)
	}
	for text, want := range map[string]string{
		"preference.loss = 'ppo'":                                               `preference.loss`,
		"preference.beta = 0.3":                                                 "has no effect",
		"preference = {loss = 'ipo', label_smoothing = 0.1}":                    "has no effect",
		"preference = {loss = 'dpo', gamma = 1.0}":                              "has no effect",
		"preference = {loss = 'dpo', desirable_weight = 2.0}":                   "has no effect",
		"preference = {loss = 'dpo', label_smoothing = 0.5}":                    "less than 0.5",
		"preference = {loss = 'dpo', beta = 0.0}":                               "more than 0",
		"preference.loss = 'dpo'\nbatch = {sequences = 6, microbatch = 3}":      "needs whole pairs of sequences in each microbatch",
		"preference.loss = 'dpo'\nbatch.sequences = 5":                          "make batch.sequences and batch.microbatch even",
		"preference.loss = 'dpo'\nmodel.mtp_layers = 1":                         "multi-token prediction (model.mtp_layers = 1)",
		"preference.loss = 'dpo'\ndata.packing = 'first-fit'":                   "each answer is a sequence",
		"preference.loss = 'dpo'\ndata.stream = true":                           "cannot be combined with data.stream",
		"preference.loss = 'dpo'\n[[eval]]\nname = 'x'\nfiles = ['x.jsonl']":    "cannot be combined with [[eval]]",
		"preference.loss = 'dpo'\n[[data.source]]\nname = 'x'\nfiles = ['x.x']": "cannot be combined with [[data.source]]",
		"preference.loss = 'dpo'\nmodel.family = 'mixtral'":                     "set aux_loss_weight = 0.0",
		"preference.loss = 'dpo'\ndata.format = 'text'":                         "needs documents with answers",
	} {
		head := "data.train = ['a.jsonl']\n"
		if strings.Contains(text, "data.source") {
			head = ""
		}
		if !strings.Contains(text, "data.format") {
			head += "data.format = 'documents'\n"
		}
		if _, err := Parse("p.toml", []byte(head+text), nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

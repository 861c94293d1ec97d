// Package peft reads and writes adapters in the directories of the Python package peft: adapter_config.json and
// adapter_model.safetensors, whose tensors are named base_model.model.MODULE.lora_A.weight and so on.
//
//	d, err := peft.Read(dir)
//	…
//	defer d.Close()
//	adapter, err := d.Adapter(base)          // base is the model without an adapter
//	config.Adapter = adapter
//	model, err := stages.NewModel(config)
//	weights, err := d.Weights(model, source) // source has the weights of the base
//
// Each key of adapter_config.json is honored, has no effect on what the model computes, or is refused by name (keys.go).
// Read compares the settings with the tensors of the file, and Weights compares both with the model. Nothing is allocated
// for a tensor before its shape was compared.
//
// A family may have several linear layers in one tensor of its files, such as qkv_proj of Phi-3. Troupe has an adapter for each
// of them. In a directory these are one adapter, whose rank is the sum of the ranks and whose B is block-diagonal (fused.go).
//
// The package must not know runs, checkpoints of runs, or the command line.
package peft

// Package infer uses a trained model: it generates text, evaluates, predicts and exports. Each function
// opens the model from a run's output folder, a checkpoint, a Hugging Face directory or a
// GGUF file:
//
//	var o infer.GenerateOptions
//	o.From, o.Prompt, o.Tokens = "runs/first", "Once", 64
//	err := infer.Generate(ctx, o, func(text []byte) error { … })
//
// Package troupe has the same functions and types with the same names.
//
// It must not know how a run trains.
package infer

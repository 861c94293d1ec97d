// Package infer uses a trained model: it generates text, evaluates, predicts and exports. Each function
// opens the model from a run's output folder, a checkpoint, or a Hugging Face directory:
//
//	o := infer.GenerateOptions{ModelOptions: infer.ModelOptions{From: "runs/first"}, Prompt: "Once", Tokens: 64}
//	err := infer.Generate(ctx, o, func(text []byte) error { … })
//
// Package troupe has the same functions and types with the same names.
//
// It must not know how a run trains.
package infer

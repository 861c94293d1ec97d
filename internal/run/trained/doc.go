// Package trained holds a trained model on a device: opened from a checkpoint, or with memory that the weights of a
// run are copied to. Package infer uses it to generate, evaluate and predict.
//
// It must not know what the model is used for, nor how a run goes.
package trained

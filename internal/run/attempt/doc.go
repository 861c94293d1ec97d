// Package attempt turns a configuration, the run's folder, its data and the devices into actors that train: one attempt
// at a run. A run makes another one when a process that computed ranks fails.
//
// Open does it in this order: the devices or workers, the folder and the checkpoint in it, the data, the plan, the
// memory, the stages, and the folder's files. Only then the folder is changed.
//
// It must not know who watches a run, nor what is asked of it while it trains.
package attempt

package p2p

// LimitUnread bounds the messages of one direction from one rank that nobody has asked for.
const LimitUnread = 1024

// LimitTensors bounds the tensors of a message.
const LimitTensors = 64

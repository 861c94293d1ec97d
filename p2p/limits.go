package p2p

// LimitUnread bounds the messages of one direction from one rank that arrived before a call receives them.
const LimitUnread = 1024

// LimitTensors bounds the tensors in a message.
const LimitTensors = 64

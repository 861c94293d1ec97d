// Package control lets other processes of the same user see and steer a run on this machine. The run listens on a Unix socket in
// its folder; a client finds it by that folder.
//
// A client sends one JSON object a line, a request, and gets one line for each, an answer. After the request to follow, the
// lines are the run's events instead. Only processes of the same user, and of root, are served: the socket has the mode 0600, and
// where the system names the user at the other end, both sides compare it.
//
// The holder of a run's lock is the only one that may listen, so a socket that it finds there belongs to a process that has
// ended, and is replaced. The path of a Unix socket is short; the socket of a folder with a long path is in a private folder
// below /tmp, under a name that is computed from the run's folder.
//
// The package must not know how a run is started, trained or shown.
package control

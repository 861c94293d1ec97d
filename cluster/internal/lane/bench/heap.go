package main

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
)

// heapCount counts a process's allocations since its start.
type heapCount struct{ bytes, objects uint64 }

type heapState struct{ own, peer heapCount }

func countHeap() heapCount {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heapCount{m.TotalAlloc, m.Mallocs}
}

// serveHeap answers every byte with the receiver's count.
func serveHeap(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var b [16]byte
	for {
		if _, err := io.ReadFull(conn, b[:1]); err != nil {
			return
		}
		count := countHeap()
		binary.LittleEndian.PutUint64(b[:], count.bytes)
		binary.LittleEndian.PutUint64(b[8:], count.objects)
		if _, err := conn.Write(b[:]); err != nil {
			return
		}
	}
}

type heapReader struct{ conn net.Conn }

func dialHeap(address string) (*heapReader, error) {
	conn, err := net.Dial("tcp", address)
	return &heapReader{conn}, err
}

func (h *heapReader) read() (heapState, error) {
	var b [16]byte
	if _, err := h.conn.Write(b[:1]); err != nil {
		return heapState{}, err
	}
	if _, err := io.ReadFull(h.conn, b[:]); err != nil {
		return heapState{}, err
	}
	peer := heapCount{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
	return heapState{own: countHeap(), peer: peer}, nil
}

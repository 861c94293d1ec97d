package sysinfo

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat.
const tick = 10 * time.Millisecond

// InterruptTime is what all cores have spent on interrupts so far, such as those of the network, where the system counts them
// apart from the processes that they interrupt.
func InterruptTime() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return interruptTime(string(stat))
}

// interruptTime reads the columns irq and softirq of the line of all cores: cpu user nice system idle iowait irq softirq …
func interruptTime(stat string) time.Duration {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0
	}
	var ticks int64
	for _, f := range fields[6:8] {
		n, err := strconv.ParseInt(f, 10, 48)
		if err != nil || n < 0 {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

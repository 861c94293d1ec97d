//go:build unix

package data

import (
	"os"
	"strings"
	"testing"
)

func TestMappedFileThatBecameShorter(t *testing.T) {
	t.Chdir(t.TempDir())
	uint16File(t, "ids", make([]uint16, 100_000)...)
	c, err := OpenUint16([]string{"ids"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, c)
	if err := os.Truncate("ids", 10); err != nil {
		t.Fatal(err)
	}
	err = c.Read(make([]int32, 10), 90_000)
	if err == nil || !strings.Contains(err.Error(), "cannot read ids at byte 180000") {
		t.Errorf("error %v", err)
	}
	if _, err := c.Identity(); err == nil || !strings.Contains(err.Error(), "cannot read ids") {
		t.Errorf("its identity: error %v", err)
	}
}

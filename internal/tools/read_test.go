package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

func TestRead(t *testing.T) {
	long := strings.Repeat("x", 5000)
	b := newBox(t, map[string]string{
		"plain": "one\ntwo\r\nthree", "empty": "", "newline": "\n", "many": numbered(5000), "d/sub.txt": "below\n",
		"long": "a\n" + long + "\nb\n", "latin": "caf\xe9\n", "late-nul": strings.Repeat("a\n", 8000) + "b\x00c\n",
		"wide": strings.Repeat(strings.Repeat("w", 999)+"\n", 200), "é.txt": "accent\n", "bom": "\ufeffx\n",
	})
	for _, c := range []struct{ arguments, want string }{
		{`{"path":"plain"}`, "one\ntwo\r\nthree"},
		{`{"path":"./plain"}`, "one\ntwo\r\nthree"},
		{`{"path":"d/../plain"}`, "one\ntwo\r\nthree"},
		{`{"path":"plain","offset":2}`, "two\r\nthree\n[lines 2 to 3 of 3]"},
		{`{"path":"plain","offset":2,"limit":1}`, "two\r\n[lines 2 to 2 of 3: go on with offset 3]"},
		{`{"path":"plain","limit":3}`, "one\ntwo\r\nthree"},
		{`{"path":"empty"}`, "[the file is empty]"},
		{`{"path":"newline"}`, "\n"},
		{`{"path":"d/sub.txt"}`, "below\n"},
		{`{"path":"d//sub.txt/"}`, "below\n"},
		{`{"path":"many"}`, numbered(2000) + "[lines 1 to 2000 of 5000: go on with offset 2001]"},
		{`{"path":"many","offset":4999}`, "line 4999\nline 5000\n[lines 4999 to 5000 of 5000]"},
		{`{"path":"many","limit":5000}`, numbered(5000)},
		{`{"path":"long"}`, "a\n" + long[:4096] + " …[cut: the line has 5001 bytes]\nb\n[lines over 4096 bytes are cut: 1]"},
		{`{"path":"latin"}`, "caf\ufffd\n[bytes that are not UTF-8 text are shown as U+FFFD]"},
		{`{"path":"late-nul","offset":8001}`, "b\ufffdc\n[lines 8001 to 8001 of 8001]\n[bytes that are not UTF-8 text are shown as U+FFFD]"},
		{`{"path":"é.txt"}`, "accent\n"},
		{`{"path":"bom"}`, "\ufeffx\n"},
		{object("path", filepath.Join(b.dir, "plain")), "one\ntwo\r\nthree"},
		{object("path", b.dir+"//d/../plain"), "one\ntwo\r\nthree"},
	} {
		if got := b.good("read", c.arguments); got != c.want {
			t.Errorf("%s:\n got %.300q\nwant %.300q", c.arguments, got, c.want)
		}
	}
	wide := b.good("read", `{"path":"wide"}`)
	if !strings.HasSuffix(wide, "\n[lines 1 to 63 of 200: go on with offset 64]") {
		t.Errorf("…%q", wide[len(wide)-100:])
	}
}

// TestReadPages holds that pages put together are the file.
func TestReadPages(t *testing.T) {
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "%d %s\n", i, strings.Repeat("é", i%300))
	}
	b := newBox(t, map[string]string{"f": text.String()})
	var got strings.Builder
	for offset, pages := 1, 0; ; pages++ {
		if pages > 100 {
			t.Fatal("it does not end")
		}
		page := b.good("read", object("path", "f", "offset", offset))
		k := strings.LastIndex(page, "[lines ")
		var first, last, total int
		if _, err := fmt.Sscanf(page[k:], "[lines %d to %d of %d", &first, &last, &total); err != nil || first != offset || total != 3000 {
			t.Fatalf("%q: %v", page[k:], err)
		}
		got.WriteString(page[:k])
		if last == total {
			break
		}
		offset = last + 1
	}
	if got.String() != text.String() {
		t.Error("the pages are not the file")
	}
}

func TestReadRefuses(t *testing.T) {
	b := newBox(t, map[string]string{
		"main.go": "x\ny\n", "d/config.toml": "", "d/other": "", "binary": "\x7fELF\x00\x01", "empty": "",
	})
	b.bad("read", `{"path":""}`, "is a folder, not a file: use list")
	b.bad("read", `{"path":"d"}`, "d is a folder")
	b.bad("read", `{"path":"main.rs"}`, "main.rs does not exist. There is main.go.")
	b.bad("read", `{"path":"d/Config.toml"}`, "There is d/config.toml.")
	b.bad("read", `{"path":"d/zzzzzzzz"}`, "d/zzzzzzzz does not exist.")
	b.bad("read", `{"path":"e/f/g"}`, "Its folder does not exist either")
	b.bad("read", `{"path":"main.go/x"}`, "does not exist: a part of the path is a file")
	b.bad("read", `{"path":"binary"}`, "binary file of 6 bytes")
	b.bad("read", `{"path":"main.go","offset":3}`, "has 2 lines: there is no line 3")
	b.bad("read", `{"path":"main.go","offset":2000000000}`, "has 2 lines")
	b.bad("read", `{"path":"empty","offset":2}`, "has 0 lines")
	if os.Getuid() > 0 {
		if err := os.Chmod(filepath.Join(b.dir, "d/other"), 0); err != nil {
			t.Fatal(err)
		}
		b.bad("read", `{"path":"d/other"}`, "permission denied")
	}
}

// sparse makes a file of a size that is not on the disk.
func sparse(t *testing.T, name string, head string, size int64) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(head); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
}

func TestReadHugeFile(t *testing.T) {
	b := newBox(t, nil)
	const size = 10 << 30
	sparse(t, filepath.Join(b.dir, "nul"), "", size)
	sparse(t, filepath.Join(b.dir, "log"), numbered(3000), size)
	b.bad("read", `{"path":"nul"}`, "binary file of 10 GiB")
	if got := b.good("read", `{"path":"log","limit":2}`); got != "line 1\nline 2\n[lines 1 to 2 of a file of 10 GiB: go on with offset 3]" {
		t.Errorf("%q", got)
	}
	b.bad("read", `{"path":"log","offset":3002}`, "Line 3002 of log is more than 256 MiB into the file")
	got := b.good("search", `{"pattern":"line 299.$","path":"log"}`)
	if !strings.HasPrefix(got, "log:2990:line 2990\n") || !strings.Contains(got, "in their first 256 MiB: 1") {
		t.Errorf("%q", got)
	}
}

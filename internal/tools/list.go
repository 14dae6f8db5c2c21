package tools

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dsh-agent/dsh"
)

// maxEntries is how many entries one list shows.
const maxEntries = 1000

const listAbout = `Lists a folder of the working folder, one entry a line: its kind (dir, file, link, fifo, socket, device, other), its size in bytes (- for what is no file), and its path relative to the working folder; a link also has its target. ` +
	`Entries are sorted by name, and with a depth over 1 a folder's own entries follow it; what .gitignore leaves out, and .git, is named but not gone into. ` +
	`A name with unusual bytes stands in quotes and can be passed on as it stands. At most 1000 entries are shown.`

func listTool(f *Folder) dsh.Tool {
	return newTool("list", listAbout, []param{
		{name: "path", kind: "string", about: "The folder, relative to the working folder; the working folder itself if left out."},
		{name: "depth", kind: "integer", about: "How many levels of folders to show.", min: 1, max: maxDepth, def: 1},
	}, f.list)
}

func (f *Folder) list(ctx context.Context, args arguments) (answer, error) {
	name, err := f.resolve(args.text("path"))
	if err != nil {
		return answer{}, err
	}
	w := walk{folder: f, start: name, depth: args.number("depth")}
	var a answer
	var text strings.Builder
	shown, more := 0, false
	for e, err := range w.entries(ctx) {
		if err != nil {
			return answer{}, err
		}
		line := f.line(e)
		if shown == maxEntries || text.Len()+len(line) > MaxResult-noteSpace {
			more = true
			break
		}
		text.WriteString(line)
		shown++
	}
	a.text = text.String()
	switch {
	case more:
		a.notef("the first %d entries; there are more: list a folder below, use a smaller depth, or search with a glob", shown)
	case shown == 0:
		a.notef("the folder is empty")
	}
	w.notes(&a)
	return a, nil
}

// line is an entry as list shows it.
func (f *Folder) line(e entry) string {
	k, size, name := kind(e.info.Mode()), "-", quote(e.path)
	switch k {
	case "file":
		size = strconv.FormatInt(e.info.Size(), 10)
	case "dir":
		name = quote(e.path + "/")
	case "link":
		if target, err := f.root.Readlink(filepath.FromSlash(e.path)); err == nil {
			name += " -> " + quote(target)
		}
	}
	return k + " " + size + " " + name + "\n"
}

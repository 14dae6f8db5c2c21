package tools

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/dsh-agent/dsh"
)

const editAbout = `Replaces text in a file of the working folder. The old text must stand in the file exactly as it is given, with its white space, and once only, unless replace_all is true: ` +
	`give as many of the lines around it as make it unique. The file's line ends (LF or CRLF) and its mode stay as they are. ` +
	`To make a new file or replace one whole use write.`

func editTool(f *Folder) dsh.Tool {
	return newChange("edit", editAbout, []param{
		{name: "path", kind: "string", required: true, about: "The file, relative to the working folder."},
		{name: "old", kind: "string", required: true, about: "The text to replace, as read shows it."},
		{name: "new", kind: "string", required: true, about: "The text to put in its place; empty to delete."},
		{name: "replace_all", kind: "boolean", about: "Replace each place where the old text stands."},
	}, f.edit)
}

func (f *Folder) edit(ctx context.Context, args arguments) (answer, error) {
	name, err := f.target(args.text("path"))
	if err != nil {
		return answer{}, err
	}
	content, info, err := f.whole(name)
	if err != nil {
		return answer{}, err
	}
	e := edit{name: name, text: content, old: args.text("old"), new: args.text("new"), all: args.flag("replace_all")}
	result, err := e.apply()
	if err != nil {
		return answer{}, err
	}
	if err := f.put(ctx, name, []byte(result), info); err != nil {
		return answer{}, err
	}
	return answer{text: e.summary()}, nil
}

// whole reads a file that is to be changed.
func (f *Folder) whole(name string) (string, fs.FileInfo, error) {
	if info, err := f.replaceable(name); err != nil {
		return "", nil, err
	} else if info == nil {
		return "", nil, mistakef("%s does not exist.%s To make a new file use write.", show(name), f.suggest(name))
	}
	file, info, err := f.open(name, false)
	if err != nil {
		return "", nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxWrite+1))
	switch {
	case err != nil:
		return "", nil, readError(name, err)
	case len(content) > maxWrite:
		return "", nil, mistakef("%s is a file of %s, and edit takes up to %s: use shell.", show(name), size(info.Size()), size(maxWrite))
	case bytes.IndexByte(content[:min(len(content), binaryHead)], 0) >= 0:
		return "", nil, mistakef("%s is a binary file (it has NUL bytes), and edit changes text only.", show(name))
	}
	return string(content), info, nil
}

// An edit is one replacement in a text.
type edit struct {
	name     string
	text     string
	old, new string
	all      bool

	lines []int // where it was made, from 1
	crlf  bool  // the file has CRLF line ends only
}

// maxPlaces is how many places an error or a summary names.
const maxPlaces = 10

// apply makes the replacement. Its error is a mistake.
func (e *edit) apply() (string, error) {
	e.crlf = strings.Contains(e.text, "\r\n") && strings.Count(e.text, "\n") == strings.Count(e.text, "\r\n")
	if e.crlf {
		e.old, e.new = toCRLF(e.old), toCRLF(e.new)
	}
	if e.old == "" {
		return "", mistakef("The old text is empty: give the text to replace, or use write to make a file whole.")
	}
	if e.old == e.new {
		return "", mistakef("The old and the new text are the same: there is nothing to change.")
	}
	e.find()
	switch n := len(e.lines); {
	case n == 0:
		return "", e.missing()
	case n > 1 && !e.all:
		return "", mistakef("The old text stands %d times in %s, at %s. Give more of the lines around the one that is meant, or set replace_all.", n, show(e.name), e.places())
	}
	if grown := len(e.text) + len(e.lines)*(len(e.new)-len(e.old)); grown > maxWrite {
		return "", mistakef("The file would have %s, and at most %s are written.", size(int64(grown)), size(maxWrite))
	}
	return strings.ReplaceAll(e.text, e.old, e.new), nil
}

// toCRLF gives a text the line ends of a file that has no others.
func toCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// find notes the line of each place of the old text.
func (e *edit) find() {
	line, from := 1, 0
	for {
		i := strings.Index(e.text[from:], e.old)
		if i < 0 {
			return
		}
		line += strings.Count(e.text[from:from+i], "\n")
		e.lines = append(e.lines, line)
		line += strings.Count(e.old, "\n")
		from += i + len(e.old)
	}
}

// places names lines.
func (e *edit) places() string {
	var b strings.Builder
	b.WriteString("line ")
	if len(e.lines) > 1 {
		b.Reset()
		b.WriteString("lines ")
	}
	for i, l := range e.lines[:min(len(e.lines), maxPlaces)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(l))
	}
	if len(e.lines) > maxPlaces {
		fmt.Fprintf(&b, " and %d more", len(e.lines)-maxPlaces)
	}
	return b.String()
}

// missing says that the old text is not there, and what comes near.
func (e *edit) missing() error {
	hint := "Read the file again: it may have changed, or the text was not copied exactly."
	if at := e.loose(); at > 0 {
		hint = fmt.Sprintf("At line %d stands the same text with other white space: read it there and copy it exactly.", at)
	} else if first, at := e.firstLine(); at > 0 {
		hint = fmt.Sprintf("Its first line (%s) stands at line %d, but what follows is different: read it there.", show(first), at)
	}
	return mistakef("The old text does not stand in %s. %s", show(e.name), hint)
}

// loose is the line at which the old text stands but for white space at the
// ends of its lines; 0: nowhere. Texts of many lines are not looked at.
func (e *edit) loose() int {
	want := trimmed(strings.Trim(e.old, "\r\n"))
	have := trimmed(e.text)
	if len(want) > 1000 || len(have) > 100000 || len(want) == 0 {
		return 0
	}
	for i := 0; i+len(want) <= len(have); i++ {
		k := 0
		for k < len(want) && have[i+k] == want[k] {
			k++
		}
		if k == len(want) {
			return i + 1
		}
	}
	return 0
}

func trimmed(s string) []string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// firstLine is the first line of the old text that says something, and where
// it stands in the file; 0: nowhere, or there is no other line.
func (e *edit) firstLine() (string, int) {
	lines := trimmed(e.old)
	if len(lines) < 2 {
		return "", 0
	}
	for _, l := range lines {
		if len(l) < 4 {
			continue
		}
		if i := strings.Index(e.text, l); i >= 0 {
			return l, 1 + strings.Count(e.text[:i], "\n")
		}
		return "", 0
	}
	return "", 0
}

func (e *edit) summary() string {
	return fmt.Sprintf("edited %s: %s, at %s\n", quote(e.name), count(len(e.lines), "replacement"), e.places())
}

package wasm

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/dsh-agent/dsh/hostabi"
)

// The section of names is for people. It is checked all the same, since an
// engine reads it, and takes its counts for the truth: one of 20 bytes makes
// wazero 1.12 ask for 128 GiB.
// Source of the format: the core specification 2.0, 7.4 "Name Section".

// The parts of the section of names that are known. Others are skipped.
const (
	namesModule = iota
	namesFunctions
	namesLocals
)

// names checks the section of names.
func (d *decoder) names() *Refusal {
	r := &reader{b: d.m.nameSection}
	total := 0
	for !r.done() {
		id := r.byte()
		part := &reader{b: r.take(r.u32())}
		switch {
		case r.err != nil || id > namesLocals:
			continue
		case id == namesModule:
			part.name()
		case id == namesFunctions:
			total += nameMap(part, nil)
		default:
			total += localNames(part)
		}
		_ = part.end() // kept in part.err
		if part.err != nil {
			r.stop(part.err)
		}
		if r.err == nil && total > MaxNames {
			r.stop(tooMany(RuleNames, uint64(total), MaxNames, "names"))
		}
	}
	if r.err != nil && r.err.Rule == RuleFormat {
		return refuse(RuleNames, "has a damaged section of names: %s", r.err.text)
	}
	return r.err
}

// nameMap reads names by index and says how many there are.
func nameMap(r *reader, each func(index uint32, name []byte)) int {
	n := r.count(RuleNames, "names", MaxNames, 2)
	for range n {
		index, name := r.u32(), r.name()
		if r.err != nil {
			break
		}
		if each != nil {
			each(index, name)
		}
	}
	return n
}

func localNames(r *reader) int {
	total := r.count(RuleNames, "functions with named locals", MaxNames, 2)
	for range total {
		r.u32()
		if total += nameMap(r, nil); r.err != nil || total > MaxNames {
			break
		}
	}
	return total
}

// FunctionName is what a function is called: by the section of names, by an
// import or by an export, in this order. It is "" where none of them tells.
// What is not printable in it is left out, and so is what is too long.
func (m *Module) FunctionName(index int) string {
	if name := m.nameInSection(index); name != "" {
		return name
	}
	n := 0
	for _, i := range m.Imports {
		if i.Kind != hostabi.ExternFunc {
			continue
		}
		if n == index {
			return printable(i.Module + "." + i.Name)
		}
		n++
	}
	for _, e := range m.Exports {
		if e.Kind == hostabi.ExternFunc && int(e.Index) == index {
			return printable(e.Name)
		}
	}
	return ""
}

// nameInSection looks for a name; it is asked for once, by a refusal, and the
// section may not have been checked.
func (m *Module) nameInSection(index int) (found string) {
	r := &reader{b: m.nameSection}
	for !r.done() {
		id := r.byte()
		part := &reader{b: r.take(r.u32())}
		if id != namesFunctions {
			continue
		}
		nameMap(part, func(i uint32, name []byte) {
			if int(i) == index && found == "" {
				found = printable(string(name))
			}
		})
	}
	return found
}

// maxShownName bounds a name in a message, in runes.
const maxShownName = 80

func printable(name string) string {
	var b []rune
	for _, c := range name {
		switch {
		case c == utf8.RuneError || !unicode.IsPrint(c):
			continue
		case len(b) == maxShownName:
			return string(b) + "…"
		}
		b = append(b, c)
	}
	return string(b)
}

func opName(op int) string {
	if op >= OpMisc {
		return fmt.Sprintf("opcode 0xfc 0x%02x", op-OpMisc)
	}
	return fmt.Sprintf("opcode 0x%02x", op)
}

package config

import "strconv"

// An OriginKind says what kind of thing a value came from.
type OriginKind string

// The kinds of origins, the weakest first.
const (
	FromDefault  OriginKind = "default"
	FromPreset   OriginKind = "preset"
	FromFile     OriginKind = "file"
	FromVariable OriginKind = "variable"
	FromFlag     OriginKind = "flag"
)

// An Origin is where a value came from. The zero value stands for nowhere.
type Origin struct {
	Kind   OriginKind
	Name   string // of the preset, file, variable or flag
	Line   int    // in a file, from 1; 0: not known
	Column int    // in characters, from 1; 0: not known
}

// String is "default", "preset NAME", "FILE:LINE", "$VARIABLE" or "--flag".
func (o Origin) String() string {
	switch o.Kind {
	case FromPreset:
		return "preset " + o.Name
	case FromFile:
		if o.Line > 0 {
			return o.Name + ":" + strconv.Itoa(o.Line)
		}
		return o.Name
	case FromVariable:
		return "$" + o.Name
	case FromFlag:
		return o.Name
	}
	return string(o.Kind)
}

// place is the origin as the beginning of a line about a problem.
func (o Origin) place() string {
	if o.Kind == FromFile && o.Line > 0 && o.Column > 0 {
		return o.String() + ":" + strconv.Itoa(o.Column)
	}
	return o.String()
}

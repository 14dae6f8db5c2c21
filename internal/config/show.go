package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-agent/dsh"
)

// WriteText writes the resolved configuration as a dsh.toml, with the origin
// of each value in a comment. Read again, it gives the same values. No secret
// is in it.
func (c *Config) WriteText(w io.Writer) error {
	var b bytes.Buffer
	title, element := "", (*node)(nil)
	for _, s := range c.Settings {
		if s.title != title || strings.HasPrefix(s.title, "[[") && s.element != element {
			if title != "" {
				b.WriteByte('\n')
			}
			title, element = s.title, s.element
			b.WriteString(title + "\n")
		}
		line := s.name + " = " + tomlValue(s.Shown())
		if s.hidden() || s.Value == "" && s.Origin.Kind == FromDefault && s.Key != "agent.system" && !strings.HasSuffix(s.Key, ".api_key_env") {
			line = "# " + line
		}
		fmt.Fprintf(&b, "%-44s # %s\n", line, oneLine(s.From()))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// From is the origin in words, and for the name of a variable whether that is
// set.
func (s Setting) From() string {
	switch {
	case s.Secret != nil && s.Secret.IsSet():
		return s.Origin.String() + "; the variable is set"
	case s.Secret != nil:
		return s.Origin.String() + "; the variable is not set"
	case s.hidden():
		return s.Origin.String() + "; values that may be secrets are hidden"
	}
	return s.Origin.String()
}

// hidden reports whether a part of the value is not shown.
func (s Setting) hidden() bool {
	m, ok := s.Value.(map[string]string)
	if !ok || s.name != "headers" {
		return false
	}
	for name := range m {
		if maybeSecretHeader(name) {
			return true
		}
	}
	return false
}

// Shown is the value, without what may be a secret.
func (s Setting) Shown() any {
	if !s.hidden() {
		return s.Value
	}
	m := maps.Clone(s.Value.(map[string]string))
	for name := range m {
		if maybeSecretHeader(name) {
			m[name] = "(hidden)"
		}
	}
	return m
}

type settingJSON struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
	Set    *bool  `json:"set,omitempty"` // of the variable that the value names
}

// WriteJSON writes one object a line: key, value, origin, and for the name of
// a secret's variable whether it is set.
func (c *Config) WriteJSON(w io.Writer) error {
	for _, s := range c.Settings {
		j := settingJSON{Key: s.Key, Value: s.Shown(), Origin: s.Origin.String()}
		if s.Secret != nil {
			set := s.Secret.IsSet()
			j.Set = &set
		}
		line, err := dsh.JSON(j)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Key, err)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// tomlValue writes a value as TOML, on one line.
func tomlValue(v any) string {
	switch v := v.(type) {
	case string:
		return tomlText(v)
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []string:
		items := make([]string, len(v))
		for i, s := range v {
			items[i] = tomlText(s)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]string:
		m := map[string]any{}
		for k, s := range v {
			m[k] = s
		}
		return tomlValue(m)
	case map[string]any:
		var items []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			items = append(items, tomlKey(k)+" = "+tomlValue(v[k]))
		}
		if len(items) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(items, ", ") + " }"
	case []any:
		items := make([]string, len(v))
		for i, e := range v {
			items[i] = tomlValue(e)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case json.Number:
		return v.String()
	case json.RawMessage:
		d := json.NewDecoder(bytes.NewReader(v))
		d.UseNumber()
		var doc any
		if d.Decode(&doc) == nil {
			return tomlValue(doc)
		}
	}
	return `""`
}

func tomlKey(k string) string {
	if bareName(k) {
		return k
	}
	return tomlText(k)
}

// tomlText writes a basic string.
func tomlText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

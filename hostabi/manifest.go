package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
)

// A Manifest is what a module says of itself in its section dsh.policy. A
// module without one speaks ABI, asks for nothing and has no version.
type Manifest struct {
	ABI          string   `json:"abi"`
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	Description  string   `json:"description"`
	Capabilities []string `json:"capabilities"`
}

// The limits of a manifest's fields, in bytes, and of its list.
const (
	maxNameBytes            = 64
	maxVersionBytes         = 64
	maxDescriptionBytes     = 1024
	maxManifestCapabilities = 64
)

// ParseManifest reads a manifest's JSON. Unknown fields are left for later
// versions. It checks the form only: whether the ABI is one that the host
// speaks is for [Module.Problems] to say.
func ParseManifest(raw []byte) (*Manifest, error) {
	if len(raw) > MaxManifestBytes {
		return nil, fmt.Errorf("the manifest has %d bytes, and at most %d are allowed", len(raw), MaxManifestBytes)
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("the manifest is not UTF-8")
	}
	var m Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("the manifest is not a JSON object of the right form: %w", err)
	}
	return &m, m.Validate()
}

// Validate holds a manifest to its form.
func (m *Manifest) Validate() error {
	for _, f := range []struct {
		name, value string
		limit       int
	}{
		{"abi", m.ABI, maxNameBytes},
		{"name", m.Name, maxNameBytes},
		{"version", m.Version, maxVersionBytes},
		{"description", m.Description, maxDescriptionBytes},
	} {
		if len(f.value) > f.limit {
			return fmt.Errorf("the manifest's %s has %d bytes, and at most %d are allowed", f.name, len(f.value), f.limit)
		}
		if bytes.ContainsFunc([]byte(f.value), unicode.IsControl) {
			return fmt.Errorf("the manifest's %s contains a control character", f.name)
		}
	}
	if m.ABI == "" {
		return fmt.Errorf("the manifest names no abi")
	}
	if len(m.Capabilities) > maxManifestCapabilities {
		return fmt.Errorf("the manifest asks for %d capabilities, and at most %d are allowed", len(m.Capabilities), maxManifestCapabilities)
	}
	for i, c := range m.Capabilities {
		if slices.Contains(m.Capabilities[:i], c) {
			return fmt.Errorf("the manifest asks twice for the capability %q", c)
		}
	}
	return nil
}

// Pack returns the module with the manifest as its section dsh.policy, in
// place of one that it has. The section stands at the module's end. A signature
// is left out, since it is not one of what comes of it. The module's bytes are
// not changed.
func Pack(wasm []byte, m Manifest) ([]byte, error) {
	if m.ABI == "" {
		m.ABI = ABI
	}
	if m.Capabilities == nil {
		m.Capabilities = []string{}
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	raw, err := dsh.JSON(m)
	if err != nil {
		return nil, err
	}
	wasm, err = withoutSection(wasm, SignatureSection)
	if err != nil {
		return nil, err
	}
	out, err := withoutSection(wasm, ManifestSection)
	if err != nil {
		return nil, err
	}
	body := appendName(nil, ManifestSection)
	body = append(body, raw...)
	out = append(out, secCustom)
	out = appendU32(out, uint32(len(body)))
	out = append(out, body...)
	if _, err := ParseModule(out); err != nil {
		return nil, err
	}
	return out, nil
}

// withoutSection copies a module without the custom sections of a name.
func withoutSection(wasm []byte, name string) ([]byte, error) {
	if !bytes.HasPrefix(wasm, []byte(moduleHeader)) {
		return nil, ErrNotWasm
	}
	out := []byte(moduleHeader)
	r := reader{b: wasm, off: len(moduleHeader)}
	for !r.done() {
		at := r.off
		id := r.byte()
		body := r.take(r.u32())
		if r.err != nil {
			return nil, fmt.Errorf("a damaged module: section at byte %d: %w", at, r.err)
		}
		s := reader{b: body}
		if id == secCustom && s.name() == name && s.err == nil {
			continue
		}
		out = append(out, wasm[at:r.off]...)
	}
	return out, nil
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}

// appendU32 writes an unsigned LEB128 number.
func appendU32(b []byte, v uint32) []byte {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

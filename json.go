package dsh

import (
	"bytes"
	"encoding/json"
)

// JSON encodes v as the log and the guest ABI want it: compact, and without
// the escapes of <, > and & that encoding/json makes for web pages, so that
// the bytes of a raw message pass through unchanged.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

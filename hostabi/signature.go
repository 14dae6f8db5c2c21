package hostabi

import (
	"bytes"
	"errors"
	"fmt"
)

// SignatureSection is the custom section that holds a module's signature, in
// minisign's text form. It is the last one of a module, so that what is signed
// is everything before it: the module as it was before it was signed.
const SignatureSection = "dsh.signature"

// MaxSignatureBytes is how long a signature may be. Minisign's are about 300
// bytes and their comments.
const MaxSignatureBytes = 4 << 10

// SplitSignature returns what of a module is signed, and its signature; nil if
// it has none. Nothing is copied. It looks at the heads of sections only, and
// leaves bytes that are no module as they are: a signature is looked at before
// anything else is.
func SplitSignature(wasm []byte) (signed, signature []byte, err error) {
	if !bytes.HasPrefix(wasm, []byte(moduleHeader)) {
		return wasm, nil, nil
	}
	r := reader{b: wasm, off: len(moduleHeader)}
	for !r.done() {
		at := r.off
		id := r.byte()
		body := r.take(r.u32())
		if r.err != nil {
			return wasm, nil, nil //nolint:nilerr // it is damaged, which is for ParseModule to say
		}
		s := reader{b: body}
		if id != secCustom || s.name() != SignatureSection || s.err != nil {
			continue
		}
		switch text := s.rest(); {
		case !r.done():
			return nil, nil, errors.New("its signature is not at its end")
		case len(text) > MaxSignatureBytes:
			return nil, nil, fmt.Errorf("its signature has %d bytes, and at most %d are allowed", len(text), MaxSignatureBytes)
		default:
			return wasm[:at], text, nil
		}
	}
	return wasm, nil, nil
}

// WithSignature returns a module with a signature, in place of one that it has.
// Its bytes are not changed.
func WithSignature(wasm, signature []byte) ([]byte, error) {
	signed, _, err := SplitSignature(wasm)
	if err != nil {
		return nil, err
	}
	if _, err := ParseModule(signed); err != nil {
		return nil, err
	}
	body := append(appendName(nil, SignatureSection), signature...)
	out := append(bytes.Clone(signed), secCustom)
	out = append(appendU32(out, uint32(len(body))), body...)
	if len(out) > MaxModuleBytes {
		return nil, fmt.Errorf("with its signature it has %d bytes, and a module has at most %d", len(out), MaxModuleBytes)
	}
	return out, nil
}

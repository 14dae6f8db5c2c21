// Package signature signs modules and says who has signed them: by ed25519, in
// minisign's format, over a module's name, version and bytes. The name and the
// version stand in the signature's trusted comment, which is signed with the
// bytes, and the signature in the module itself: see hostabi.SignatureSection.
// It is the only room that knows the minisign library.
package signature

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"aead.dev/minisign"

	"github.com/dsh-agent/dsh/hostabi"
)

// A Key is a public key.
type Key struct{ key minisign.PublicKey }

// ParseKey reads a public key: the line RW…, or minisign's file of two lines.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	if _, err := base64.StdEncoding.DecodeString(lastLine(text)); err != nil {
		return Key{}, errors.New("it is not a minisign public key, which is one line that begins with RW")
	}
	var k Key
	if err := k.key.UnmarshalText([]byte(lastLine(text))); err != nil {
		return Key{}, errors.New("it is not a minisign public key, which is one line that begins with RW")
	}
	return k, nil
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// ID is the key's id as minisign writes it: 16 hex digits.
func (k Key) ID() string { return keyID(k.key.ID()) }

// String is the key as one line.
func (k Key) String() string { return lastLine(strings.TrimSpace(k.key.String())) }

func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// A Signature is what a module carries, whether it is good or not.
type Signature struct {
	KeyID   string // of the key that is said to have made it
	Name    string // for which it was made; "": it does not say
	Version string
	Signed  time.Time // zero: it does not say

	raw    minisign.Signature
	text   []byte
	signed []byte
}

// Of reads the signature of a module; nil if it has none.
func Of(wasm []byte) (*Signature, error) {
	signed, text, err := hostabi.SplitSignature(wasm)
	if err != nil || text == nil {
		return nil, err
	}
	return parse(signed, text)
}

func parse(signed, text []byte) (*Signature, error) {
	s := &Signature{text: text, signed: signed}
	if err := s.raw.UnmarshalText(text); err != nil {
		return nil, errors.New("its signature is not in minisign's form")
	}
	s.KeyID = keyID(s.raw.KeyID)
	seen := map[string]bool{}
	for field := range strings.SplitSeq(s.raw.TrustedComment, "\t") {
		key, value, _ := strings.Cut(field, ":")
		if seen[key] {
			return nil, fmt.Errorf("its signature says twice what its %s is", key)
		}
		seen[key] = true
		switch key {
		case "name":
			s.Name = value
		case "version":
			s.Version = value
		case "timestamp":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				s.Signed = time.Unix(n, 0)
			}
		}
	}
	return s, nil
}

// Good reports whether the key has made the signature, over these bytes, this
// name and this version.
func (s *Signature) Good(k Key) bool {
	return k.key.ID() == s.raw.KeyID && minisign.Verify(k.key, s.signed, s.text)
}

// A Verifier says which of some keys has signed a module.
type Verifier struct {
	Keys     []Key
	Required bool // a module that none of them has signed is refused
}

// Verify says which key has signed a module for a name, and for which version;
// "" for none. Its error refuses the module: its signature is damaged or not
// good, or there has to be one.
func (v Verifier) Verify(name string, wasm []byte) (signer, version string, err error) {
	s, err := Of(wasm)
	switch {
	case err != nil:
		return "", "", err
	case s == nil && v.Required:
		return "", "", errors.New("it is not signed, and require_signature asks for the signature of a listed key")
	case s == nil:
		return "", "", nil
	}
	listed := false // an id is a hint: two keys may have one
	for _, k := range v.Keys {
		if s.Good(k) {
			return v.counts(s, name)
		}
		listed = listed || k.key.ID() == s.raw.KeyID
	}
	switch {
	case listed:
		return "", "", fmt.Errorf("a bad signature: it is not of key %s over this name, this version and these bytes", s.KeyID)
	case v.Required:
		return "", "", fmt.Errorf("it is signed by key %s, which is not among the listed ones", s.KeyID)
	}
	return "", "", nil
}

// counts reports whether a good signature is one for this name.
func (v Verifier) counts(s *Signature, name string) (signer, version string, err error) {
	inside, has := manifestVersion(s.signed)
	switch {
	case has && inside != s.Version:
		return "", "", fmt.Errorf("it is signed as version %q, and its manifest says %q", s.Version, inside)
	case s.Name == name:
		return s.KeyID, s.Version, nil
	case v.Required:
		return "", "", fmt.Errorf("it is signed for the name %q, and not for %q", s.Name, name)
	}
	return "", "", nil
}

// manifestVersion is the version that a signed module's manifest names.
func manifestVersion(signed []byte) (string, bool) {
	m, err := hostabi.ParseModule(signed)
	if err != nil || m.Manifest == nil || m.Manifest.Version == "" {
		return "", false
	}
	return m.Manifest.Version, true
}

// Sign returns the module with a signature of a secret key, for a name and a
// version. The password is "" for a key that has none.
func Sign(wasm []byte, name, version, secret, password string, now time.Time) ([]byte, error) {
	if strings.ContainsFunc(name+version, unicode.IsControl) {
		return nil, errors.New("a name and a version have no control characters")
	}
	key, err := parseSecret(secret, password)
	if err != nil {
		return nil, err
	}
	signed, _, err := hostabi.SplitSignature(wasm)
	if err != nil {
		return nil, err
	}
	comment := fmt.Sprintf("timestamp:%d\tname:%s\tversion:%s", now.Unix(), name, version)
	return hostabi.WithSignature(wasm, minisign.SignWithComments(key, signed, comment, "signature of "+keyID(key.ID())))
}

// Attach returns the module with a signature that was made elsewhere, as by
// minisign itself: minisign -S -t "name:NAME<tab>version:VERSION".
func Attach(wasm, text []byte) ([]byte, error) {
	signed, _, err := hostabi.SplitSignature(wasm)
	if err != nil {
		return nil, err
	}
	if _, err := parse(signed, text); err != nil {
		return nil, err
	}
	return hostabi.WithSignature(wasm, text)
}

func parseSecret(secret, password string) (minisign.PrivateKey, error) {
	var key minisign.PrivateKey
	text := []byte(strings.TrimSpace(secret) + "\n")
	if minisign.IsEncrypted(text) {
		if password == "" {
			return key, errors.New("the secret key has a password: name the variable that holds it with --password-env")
		}
		key, err := minisign.DecryptKey(password, text)
		if err != nil {
			return key, errors.New("the password is not that of the secret key")
		}
		return key, nil
	}
	if err := key.UnmarshalText(text); err != nil {
		return key, errors.New("it is not a minisign secret key")
	}
	return key, nil
}

// Generate makes a pair of keys. The secret one is the text of minisign's file;
// with a password it is encrypted.
func Generate(password string) (Key, string, error) {
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, "", err
	}
	var text []byte
	if password == "" {
		text, err = private.MarshalText()
	} else {
		text, err = minisign.EncryptKey(password, private)
	}
	return Key{public}, string(text), err
}

// File is the text of a public key's file, as minisign reads it.
func (k Key) File() string {
	return "untrusted comment: minisign public key " + k.ID() + "\n" + k.String() + "\n"
}

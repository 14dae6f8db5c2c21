// Package seal encrypts what is kept on a disk, with AES-256-GCM and keys that
// are derived from one of 32 bytes. What was changed, or stands in another
// place than it was sealed for, is not opened.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// The errors of this package.
var (
	ErrKey    = errors.New("a key is 32 random bytes, as 64 hex digits or in base64 (openssl rand -hex 32 makes one)")
	ErrOpen   = errors.New("it was sealed with another key, or changed since")
	ErrSealed = errors.New("it is encrypted, and there is no key")
)

// ParseKey reads a key that is written in hex or base64. White space around it
// is passed over. Its error does not show it.
func ParseKey(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	for _, decode := range []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if key, err := decode(text); err == nil && len(key) == KeySize {
			return key, nil
		}
	}
	return nil, ErrKey
}

// A Box seals and opens. It may be used by several goroutines. A nil Box seals
// nothing: it gives back what it is given.
type Box struct {
	aead cipher.AEAD // with a random nonce of 96 bits
	mac  []byte
}

// New makes a box of a key.
func New(key []byte) (*Box, error) {
	if len(key) != KeySize {
		return nil, ErrKey
	}
	sub, err := hkdf.Key(sha256.New, key, nil, "dsh seal 1", KeySize)
	if err != nil {
		return nil, err
	}
	mac, err := hkdf.Key(sha256.New, key, nil, "dsh names 1", KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(sub)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Box{aead: aead, mac: mac}, nil
}

// mark begins what is sealed. No text, and nothing else that a store keeps,
// begins so.
const mark = 0x02

// Overhead is by how many bytes at most sealing makes something longer.
const Overhead = 1 + 12 + 16

// Seal encrypts something for one place: it is opened with the same place only.
func (b *Box) Seal(place string, plain []byte) []byte {
	if b == nil {
		return plain
	}
	out := make([]byte, 1, len(plain)+Overhead)
	out[0] = mark
	return b.aead.Seal(out, nil, plain, []byte(place))
}

// Open decrypts what Seal has made. With a box, what is not sealed is refused,
// so that nobody puts something plain in its place.
func (b *Box) Open(place string, sealed []byte) ([]byte, error) {
	if b == nil {
		if len(sealed) > 0 && sealed[0] == mark {
			return nil, ErrSealed
		}
		return sealed, nil
	}
	if len(sealed) < Overhead || sealed[0] != mark {
		return nil, ErrOpen
	}
	plain, err := b.aead.Open(nil, nil, sealed[1:], []byte(place))
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}

// Sum names contents: by their SHA-256, which with a box takes the key to make.
func (b *Box) Sum(plain []byte) [sha256.Size]byte {
	if b == nil {
		return sha256.Sum256(plain)
	}
	m := hmac.New(sha256.New, b.mac)
	m.Write(plain)
	return [sha256.Size]byte(m.Sum(nil))
}

// salt is what a stream begins with, after its mark.
func salt() []byte {
	s := make([]byte, saltSize)
	rand.Read(s) //nolint:errcheck // it never fails: see crypto/rand
	return s
}

func streamAEAD(key, salt []byte) (cipher.AEAD, error) {
	if len(key) != KeySize {
		return nil, ErrKey
	}
	sub, err := hkdf.Key(sha256.New, key, salt, "dsh stream 1", KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(sub)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	return aead, nil
}

package signature_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/internal/signature"
)

type pair struct {
	public signature.Key
	secret string
}

func keys(t testing.TB) pair {
	t.Helper()
	public, secret, err := signature.Generate("")
	if err != nil {
		t.Fatal(err)
	}
	again, err := signature.ParseKey(public.String())
	if err != nil || again.ID() != public.ID() || len(public.ID()) != 16 {
		t.Fatalf("%v, %s and %s", err, again.ID(), public.ID())
	}
	if file, err := signature.ParseKey(public.File()); err != nil || file.ID() != public.ID() {
		t.Fatal(err)
	}
	return pair{public, secret}
}

func sign(t testing.TB, wasm []byte, name, version string, p pair) []byte {
	t.Helper()
	signed, err := signature.Sign(wasm, name, version, p.secret, "", time.Unix(1767225600, 0))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func retry(t testing.TB) []byte {
	t.Helper()
	wasm, ok := guests.Builtin("retry") // version 1.0.0
	if !ok {
		t.Fatal("there is no retry")
	}
	return wasm
}

func TestVerify(t *testing.T) {
	mine, other := keys(t), keys(t)
	plain := retry(t)
	good := sign(t, plain, "retry", "1.0.0", mine)
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	// A signature of mine over other bytes, put onto these.
	_, text, err := hostabi.SplitSignature(sign(t, noManifest(t), "retry", "1.0.0", mine))
	if err != nil {
		t.Fatal(err)
	}
	moved, err := hostabi.WithSignature(plain, text)
	if err != nil {
		t.Fatal(err)
	}
	renamed := bytes.Replace(good, []byte("\tname:retry\t"), []byte("\tname:other\t"), 1)
	lax, strict := signature.Verifier{Keys: []signature.Key{other.public, mine.public}}, signature.Verifier{Keys: []signature.Key{other.public, mine.public}, Required: true}
	stranger := signature.Verifier{Keys: []signature.Key{other.public}}
	for _, c := range []struct {
		what   string
		v      signature.Verifier
		name   string
		wasm   []byte
		signer string
		wrong  string
	}{
		{"good", lax, "retry", good, mine.public.ID(), ""},
		{"good and required", strict, "retry", good, mine.public.ID(), ""},
		{"unsigned", lax, "retry", plain, "", ""},
		{"unsigned and required", strict, "retry", plain, "", "it is not signed"},
		{"a stranger's", stranger, "retry", good, "", ""},
		{"a stranger's and required", signature.Verifier{Keys: stranger.Keys, Required: true}, "retry", good, "", "not among the listed ones"},
		{"for another name", lax, "first", good, "", ""},
		{"for another name and required", strict, "first", good, "", `for the name "retry", and not for "first"`},
		{"a byte of the code", lax, "retry", flip(len(plain) / 2), "", "a bad signature"},
		{"another name inside", lax, "other", renamed, "", "a bad signature"},
		{"of other bytes", lax, "retry", moved, "", "a bad signature"},
		{"another version", lax, "retry", sign(t, plain, "retry", "9.0.0", mine), "", `as version "9.0.0", and its manifest says "1.0.0"`},
		{"more after it", lax, "retry", append(bytes.Clone(good), 0, 1, 0), "", "not at its end"},
		{"no form", lax, "retry", with(t, plain, "hello"), "", "not in minisign's form"},
		{"too long", lax, "retry", with(t, plain, strings.Repeat("x", hostabi.MaxSignatureBytes+1)), "", "at most 4096"},
		{"no module", lax, "retry", []byte("hello"), "", ""},
		{"half a module", strict, "retry", good[:len(good)-1], "", "it is not signed"},
	} {
		signer, version, err := c.v.Verify(c.name, c.wasm)
		switch {
		case c.wrong == "" && (err != nil || signer != c.signer):
			t.Errorf("%s: %q, %v; want %q", c.what, signer, err, c.signer)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) || signer != ""):
			t.Errorf("%s: %q, %v; want %q", c.what, signer, err, c.wrong)
		case c.signer != "" && version != "1.0.0":
			t.Errorf("%s: version %q", c.what, version)
		}
	}
}

func with(t testing.TB, wasm []byte, text string) []byte {
	t.Helper()
	out, err := hostabi.WithSignature(wasm, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// noManifest is the smallest module.
func noManifest(testing.TB) []byte { return []byte("\x00asm\x01\x00\x00\x00") }

// TestSigned: what is signed is the module as it was, and it runs as before.
func TestSigned(t *testing.T) {
	mine, other := keys(t), keys(t)
	plain := retry(t)
	once := sign(t, plain, "retry", "1.0.0", mine)
	if !bytes.HasPrefix(once, plain) {
		t.Error("the module is not what it was")
	}
	twice := sign(t, once, "retry", "1.0.0", other)
	if signed, _, err := hostabi.SplitSignature(twice); err != nil || !bytes.Equal(signed, plain) {
		t.Errorf("signed again: %v", err)
	}
	s, err := signature.Of(twice)
	if err != nil || s.KeyID != other.public.ID() || s.Name != "retry" || s.Version != "1.0.0" || s.Signed.Unix() != 1767225600 || !s.Good(other.public) || s.Good(mine.public) {
		t.Errorf("%+v, %v", s, err)
	}
	m, err := hostabi.ParseModule(twice)
	if err != nil || m.Manifest == nil || len(m.Problems()) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	packed, err := hostabi.Pack(once, hostabi.Manifest{Name: "retry", Version: "2.0.0"})
	if s, _ := signature.Of(packed); s != nil || err != nil {
		t.Errorf("packed it has %v, %v", s, err)
	}
	if s, err := signature.Of(plain); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	_, text, err := hostabi.SplitSignature(once)
	if err != nil {
		t.Fatal(err)
	}
	if attached, err := signature.Attach(plain, text); err != nil || !bytes.Equal(attached, once) {
		t.Errorf("attached: %v", err)
	}
	if _, err := signature.Attach(plain, []byte("x")); err == nil {
		t.Error("attached what is no signature")
	}
}

// TestOfMinisign: a signature that minisign 0.11 has made, by a key that it has
// made: minisign -S -t "name:tiny<tab>version:1.0.0".
func TestOfMinisign(t *testing.T) {
	key, err := signature.ParseKey("RWQl4exLc2vI65OYtKb/aOpLaTnwmHlVv2bu4dohk5ME1OXuWkf3Nt9y")
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signature.Attach(noManifest(t), []byte("untrusted comment: signature from minisign secret key\n"+
		"RUQl4exLc2vI68TdYratlStImdzB2ivbtxc21LMX/J33cq6J2BbS2n920Ucixex1jGnoSzkbQAYcAw8K54/hsLuL69Gk8xg8AQM=\n"+
		"trusted comment: name:tiny\tversion:1.0.0\n"+
		"cdwGqbQMl7oIXh5Xu1JsDY9ze6WwX+AiXNOcDnwKWNIafn96V07PxFeCEpFnI/x00jMNBBoLhHs4Qm5rPFmJAg==\n"))
	if err != nil {
		t.Fatal(err)
	}
	signer, version, err := signature.Verifier{Keys: []signature.Key{key}, Required: true}.Verify("tiny", signed)
	if err != nil || signer != key.ID() || version != "1.0.0" {
		t.Errorf("%q, %q, %v", signer, version, err)
	}
}

func TestBadKeys(t *testing.T) {
	for _, text := range []string{"", "RW", "hello world", "RWQ=", strings.Repeat("A", 56)} {
		if _, err := signature.ParseKey(text); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is a key: %v", text, err)
		}
		if _, err := signature.Sign(retry(t), "retry", "1.0.0", text, "", time.Now()); err == nil {
			t.Errorf("%q is a secret key", text)
		}
	}
	if _, err := signature.Sign(retry(t), "re\ttry", "1.0.0", keys(t).secret, "", time.Now()); err == nil {
		t.Error("signed a name with a tab")
	}
	if _, err := signature.Sign([]byte("hello"), "retry", "1.0.0", keys(t).secret, "", time.Now()); err == nil {
		t.Error("signed what is no module")
	}
}

// FuzzVerify: whatever the bytes, they are signed or not, and nothing breaks.
func FuzzVerify(f *testing.F) {
	mine := keys(f)
	f.Add(retry(f))
	f.Add(sign(f, retry(f), "retry", "1.0.0", mine))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x00\x0f\x0ddsh.signaturex"))
	v := signature.Verifier{Keys: []signature.Key{mine.public}}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		signer, _, err := v.Verify("retry", wasm)
		signed, _, split := hostabi.SplitSignature(wasm)
		if signer != "" && (err != nil || split != nil || !bytes.Equal(signed, retry(t))) {
			t.Errorf("signed by %s, %v", signer, err)
		}
	})
}

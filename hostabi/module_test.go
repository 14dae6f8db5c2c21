package hostabi_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
)

// header is what every module begins with.
const header = "\x00asm\x01\x00\x00\x00"

// vec is a section, a name or a list: its length, and then it.
func vec(parts ...string) string {
	body := strings.Join(parts, "")
	return string(binary.AppendUvarint(nil, uint64(len(body)))) + body
}

func section(id byte, parts ...string) string { return string([]byte{id}) + vec(parts...) }

// The sections of a module with one function of type () -> i32.
var (
	types     = section(1, "\x01\x60\x00\x01\x7f")
	functions = section(3, "\x01\x00")
	code      = section(10, "\x01\x04\x00\x41\x00\x0b")
)

func exports(name string) string { return section(7, "\x01", vec(name), "\x00\x00") }

func custom(name, body string) string { return section(0, vec(name), body) }

func imports(module, name, what string) string {
	return section(2, "\x01", vec(module), vec(name), what)
}

func TestParseModule(t *testing.T) {
	good := header + types + functions + section(5, "\x01\x01\x01\x10") + exports("recover") + code + custom("other", "x") +
		custom("dsh.policy", `{"abi":"dsh:policy/v1","name":"n","version":"1","capabilities":["log.read"]}`)
	m, err := hostabi.ParseModule([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	e, ok := m.Export("recover")
	if !ok || e.Type.String() != "() -> i32" || m.Functions != 1 || len(m.Memories) != 1 || m.Memories[0].Max != 16 {
		t.Errorf("read as %+v", m)
	}
	if m.Manifest == nil || m.Manifest.Name != "n" || len(m.Asked()) != 1 || len(m.Customs) != 2 {
		t.Errorf("the manifest is read as %+v", m.Manifest)
	}
	if p := m.Problems(); len(p) != 0 {
		t.Errorf("a good module has problems: %v", p)
	}
}

func TestBuiltinModule(t *testing.T) {
	wasm, _ := guests.Builtin("retry")
	m, err := hostabi.ParseModule(wasm)
	if err != nil {
		t.Fatal(err)
	}
	if p := m.Problems(); len(p) != 0 || m.Manifest == nil || m.Manifest.Name != "retry" {
		t.Errorf("problems %v, manifest %+v", p, m.Manifest)
	}
}

func TestParseModuleRefuses(t *testing.T) {
	for _, c := range []struct{ name, wasm, want string }{
		{"empty", "", "empty"},
		{"text", "(module)", "does not begin with"},
		{"short", "\x00as", "does not begin with"},
		{"no version", "\x00asm", "version 1"},
		{"component", "\x00asm\x0d\x00\x01\x00", "component"},
		{"other version", "\x00asm\x02\x00\x00\x00", "version 1"},
		{"too large", header + strings.Repeat("\x00", hostabi.MaxModuleBytes), "at most 8388608"},
		{"section too long", header + "\x01\x7f\x00", "127 bytes, and 1 are left"},
		{"section of 4 GiB", header + "\x01\xff\xff\xff\xff\x0f", "4294967295 bytes"},
		{"length of 40 bits", header + "\x01\xff\xff\xff\xff\xff\x01", "more than 32 bits"},
		{"unknown section", header + section(14, ""), "unknown id 14"},
		{"two sections", header + types + types, "a second one"},
		{"types lie", header + section(1, "\x7f\x60"), "127 types"},
		{"many types", header + section(1, "\xff\xff\x7f"), "2097151 types"},
		{"no function type", header + section(1, "\x01\x5f\x00\x00"), "no function type"},
		{"unknown value", header + section(1, "\x01\x60\x01\x00\x00"), "unknown type 0x0"},
		{"left over", header + section(1, "\x00\x00"), "left over"},
		{"type that is not there", header + functions + exports("recover"), "type 0 does not exist"},
		{"function that is not there", header + types + exports("recover"), "function 0, which does not exist"},
		{"import cut", header + section(2, "\x01\x03ab"), "it says that it has"},
		{"import of nothing", header + types + imports("a", "b", "\x09\x00"), "unknown kind 9"},
		{"name not UTF-8", header + types + section(2, "\x01", vec("\xff"), vec("b"), "\x00\x00"), "not UTF-8"},
		{"exports lie", header + section(7, "\x10\x00"), "16 exports"},
		{"same export", header + types + functions + section(7, "\x02", vec("a"), "\x00\x00", vec("a"), "\x00\x00"), "a second export"},
		{"limits", header + section(5, "\x01\x08\x01"), "unknown flags"},
		{"custom without name", header + section(0, ""), "ends too early"},
		{"two manifests", header + strings.Repeat(custom("dsh.policy", `{"abi":"x"}`), 2), "a second manifest"},
		{"manifest not JSON", header + custom("dsh.policy", "{"), "not a JSON object"},
		{"manifest a list", header + custom("dsh.policy", "[]"), "not a JSON object"},
		{"manifest without abi", header + custom("dsh.policy", "{}"), "names no abi"},
		{"manifest not UTF-8", header + custom("dsh.policy", "{\"abi\":\"\xff\"}"), "not UTF-8"},
		{"manifest with controls", header + custom("dsh.policy", `{"abi":"x","name":"\u001b[2J"}`), "control character"},
		{"manifest too long", header + custom("dsh.policy", `{"abi":"`+strings.Repeat("x", 70000)+`"}`), "at most 65536"},
		{"name too long", header + custom("dsh.policy", `{"abi":"x","name":"`+strings.Repeat("x", 65)+`"}`), "at most 64"},
		{"capability twice", header + custom("dsh.policy", `{"abi":"x","capabilities":["a","a"]}`), "asks twice"},
	} {
		m, err := hostabi.ParseModule([]byte(c.wasm))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		} else if m != nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v %q", c.name, m, err)
		}
	}
	if _, err := hostabi.ParseModule([]byte("note")); !errors.Is(err, hostabi.ErrNotWasm) {
		t.Errorf("%v is not ErrNotWasm", err)
	}
}

func TestProblems(t *testing.T) {
	plain := header + types + functions + exports("recover") + code
	for _, c := range []struct{ name, wasm, want string }{
		{"plain", plain, ""},
		{"manifest", plain + custom("dsh.policy", `{"abi":"dsh:policy/v1","capabilities":["log.read"]}`), ""},
		{"another ABI", plain + custom("dsh.policy", `{"abi":"dsh:policy/v2"}`), `"dsh:policy/v2", and this host speaks "dsh:policy/v1"`},
		{"no such capability", plain + custom("dsh.policy", `{"abi":"dsh:policy/v1","capabilities":["fly"]}`), `"fly", which is no capability`},
	} {
		m, err := hostabi.ParseModule([]byte(c.wasm))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		problems := strings.Join(m.Problems(), "; ")
		if c.want == "" && problems != "" || !strings.Contains(problems, c.want) {
			t.Errorf("%s: %q, want %q", c.name, problems, c.want)
		}
	}
}

func TestDenial(t *testing.T) {
	read := []string{hostabi.CapLogRead}
	for _, c := range []struct {
		module, name   string
		asked, granted []string
		want           string
	}{
		{"extism:host/env", "http_request", nil, nil, "no network"},
		{"extism:host/env", "var_get", nil, nil, "no Extism variables"},
		{"extism:host/env", "fly", nil, nil, "not among Extism's functions"},
		{"wasi_snapshot_preview1", "fly", nil, nil, "no function of WASI"},
		{"env", "log", nil, nil, "those are extism:host/env, wasi_snapshot_preview1 and dsh:policy/v1"},
		{hostabi.ABI, "fly", read, read, "no function of that ABI"},
		{hostabi.ABI, "log_read", nil, read, "does not ask for the capability log.read"},
		{hostabi.ABI, "log_read", read, nil, "log.read is not granted"},
		{hostabi.ABI, "state_get", read, read, "capability state.session or state.shared"},
	} {
		if got := hostabi.Denial(c.module, c.name, c.asked, c.granted); !strings.Contains(got, c.want) {
			t.Errorf("%s.%s: %q, want %q", c.module, c.name, got, c.want)
		}
	}
}

// TestGranted: a function is there for whoever has one of its capabilities, asked
// for and granted.
func TestGranted(t *testing.T) {
	for _, c := range []struct{ asked, granted, want string }{
		{"", "log.read", ""},
		{"log.read", "", ""},
		{"log.read log.append", "log.read", "log_read"},
		{"state.shared", "state.session state.shared", "state_get state_put"},
		{"surface.content", "surface.content", ""},
	} {
		var got []string
		for _, i := range hostabi.Granted(strings.Fields(c.asked), strings.Fields(c.granted)) {
			got = append(got, i.Name)
			if i.Module != hostabi.ABI || i.Type.String() != "(i64) -> i64" {
				t.Errorf("%+v", i)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("asked %q, granted %q: %v, want %q", c.asked, c.granted, got, c.want)
		}
	}
	if n := len(hostabi.Granted(hostabi.Capabilities(), hostabi.Capabilities())); n != 5 {
		t.Errorf("%d functions for all capabilities", n)
	}
}

func TestPack(t *testing.T) {
	plain := []byte(header + types + functions + exports("recover") + code + custom("name", "x"))
	first, err := hostabi.Pack(plain, hostabi.Manifest{Name: "a", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := hostabi.Pack(first, hostabi.Manifest{Name: "b", Capabilities: []string{"log.read"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := hostabi.ParseModule(second)
	if err != nil {
		t.Fatal(err)
	}
	if m.Manifest.Name != "b" || m.Manifest.ABI != hostabi.ABI || len(m.Customs) != 2 {
		t.Errorf("packed as %+v with %v", m.Manifest, m.Customs)
	}
	if !bytes.HasPrefix(second, plain) {
		t.Error("packing has changed the module")
	}
	again, err := hostabi.Pack(second, *m.Manifest)
	if err != nil || !bytes.Equal(again, second) {
		t.Errorf("packing the same again gives other bytes: %v", err)
	}
	if _, err := hostabi.Pack([]byte("note"), hostabi.Manifest{}); !errors.Is(err, hostabi.ErrNotWasm) {
		t.Errorf("packing a text: %v", err)
	}
	if _, err := hostabi.Pack(plain, hostabi.Manifest{Name: "a\nb"}); err == nil {
		t.Error("packing a bad manifest succeeds")
	}
	if _, err := hostabi.Pack([]byte(header+"\x01\x7f"), hostabi.Manifest{}); err == nil {
		t.Error("packing a damaged module succeeds")
	}
}

// allocated is what the process has allocated until now, in bytes.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// FuzzParseModule: no bytes make the parser panic, or allocate out of
// proportion, and what it accepts can be packed.
func FuzzParseModule(f *testing.F) {
	wasm, _ := guests.Builtin("retry")
	f.Add(wasm)
	f.Add([]byte(header + types + functions + exports("recover") + code + custom("dsh.policy", `{"abi":"dsh:policy/v1"}`)))
	f.Add([]byte(header + imports("extism:host/env", "alloc", "\x00\x01") + section(5, "\x01\x07\x01\x02")))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		m, err := hostabi.ParseModule(b)
		if grown := allocated() - before; grown > 4<<20+uint64(len(b))*256 {
			t.Fatalf("%d bytes took %d to read", len(b), grown)
		}
		if err != nil {
			if m != nil {
				t.Fatal("a module beside an error")
			}
			return
		}
		m.Problems()
		packed, err := hostabi.Pack(b, hostabi.Manifest{Name: "x"})
		if err != nil {
			if len(b) > hostabi.MaxModuleBytes-200 {
				return
			}
			t.Fatal(err)
		}
		if p, err := hostabi.ParseModule(packed); err != nil || p.Manifest.Name != "x" {
			t.Fatalf("packed: %v", err)
		}
	})
}

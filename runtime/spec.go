package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// A Spec is one policy of a waterfall, as a configuration lists it.
type Spec struct {
	Name         string          // under which it is listed; unique
	Module       string          // builtin:NAME or a path
	Wasm         []byte          // the module's bytes, if they are at hand; nil: Module is read
	SHA256       string          // the digest that the bytes have to have, hex; "": any
	Capabilities []string        // granted
	Config       json.RawMessage // an object; nil: {}
	FailOnFault  bool            // a fault ends the turn
	Process      bool            // it runs in a process of its own
	MemoryMB     int             // 0: 16
	HostCalls    int             // a decision's; 0: 64
}

// A Problem is one thing that keeps a policy from being loaded.
type Problem struct {
	Index   int    // of the spec
	Policy  string // its name
	Key     string // of the configuration: name, module, sha256, capabilities, isolation, config, limits.memory_mb or limits.host_calls
	Message string // one line: what is wrong and what is allowed
}

func (p Problem) String() string {
	return fmt.Sprintf("policy %q: %s: %s", p.Policy, p.Key, p.Message)
}

// A LoadError is all that keeps a waterfall from being loaded.
type LoadError struct{ Problems []Problem }

// Error gives a line a problem.
func (e *LoadError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// checked is a spec whose module was read and held to the contract.
type checked struct {
	spec   Spec
	wasm   []byte
	digest string
	module *hostabi.Module
	code   *wasm.Module    // its bytes as they were verified
	config json.RawMessage // compact
}

// check reads a spec's module and finds everything that can be found without
// running or compiling it.
func (s Spec) check(builtin func(string) ([]byte, bool)) (checked, []Problem) {
	c := checked{spec: s}
	var problems []Problem
	add := func(key, format string, args ...any) {
		problems = append(problems, Problem{Policy: s.Name, Key: key, Message: fmt.Sprintf(format, args...)})
	}
	if !hostabi.IsPolicyName(s.Name) {
		add("name", "%q is not a name: 1 to 64 of a-z, 0-9, dot, dash and underscore are allowed, the first a letter or digit", s.Name)
	}
	for i, capability := range s.Capabilities {
		if !slices.Contains(hostabi.Capabilities(), capability) {
			add("capabilities", "%q is no capability: there are %s", capability, strings.Join(hostabi.Capabilities(), ", "))
		} else if slices.Contains(s.Capabilities[:i], capability) {
			add("capabilities", "%q is granted twice", capability)
		}
	}
	if s.MemoryMB != 0 && s.memoryPages() < hostabi.MinMemoryPages || s.memoryPages() > hostabi.MaxMemoryPages {
		add("limits.memory_mb", "%d is not from %d to %d", s.MemoryMB, hostabi.MinMemoryPages/16, hostabi.MaxMemoryPages/16)
	}
	if s.HostCalls < 0 || s.HostCalls > hostabi.MaxHostCalls {
		add("limits.host_calls", "%d is not from 1 to %d", s.HostCalls, hostabi.MaxHostCalls)
	}
	var err error
	if c.config, err = objectOf(s.Config); err != nil {
		add("config", "%v", err)
	}
	for _, p := range c.load(builtin) {
		add(p.Key, "%s", p.Message)
	}
	return c, problems
}

// load reads the module and holds it to the contract.
func (c *checked) load(builtin func(string) ([]byte, bool)) []Problem {
	s := c.spec
	one := func(key, format string, args ...any) []Problem {
		return []Problem{{Key: key, Message: fmt.Sprintf(format, args...)}}
	}
	if c.wasm = s.Wasm; c.wasm == nil {
		var err error
		if c.wasm, err = readModule(s.Module, builtin); err != nil {
			return one("module", "%v", err)
		}
	}
	c.digest = digest(c.wasm)
	var err error
	if c.module, err = hostabi.ParseModule(c.wasm); err != nil {
		return one("module", "%s: %v", s.Module, err)
	}
	var problems []Problem
	if s.SHA256 != "" && !hostabi.IsDigest(strings.ToLower(s.SHA256)) {
		problems = one("sha256", "%q is not a SHA-256 digest, which has 64 hex digits; that of %s is %s", s.SHA256, s.Module, c.digest)
	} else if s.SHA256 != "" && !strings.EqualFold(s.SHA256, c.digest) {
		problems = one("sha256", "%s has the digest %s, and sha256 pins %s: other bytes are refused", s.Module, c.digest, s.SHA256)
	}
	for _, text := range c.module.Problems() {
		problems = append(problems, Problem{Key: "module", Message: s.Module + ": " + text})
	}
	var refusals []*wasm.Refusal
	c.code, refusals = verify(c.wasm, c.module.Asked(), c.grants())
	for _, r := range refusals {
		key := "module"
		if r.Rule == wasm.RuleMemoryGrant {
			key = "limits.memory_mb"
		}
		problems = append(problems, Problem{Key: key, Message: s.Module + ": " + Printable(r.Error(), 512)})
	}
	return problems
}

// grants are what the spec gives the module.
func (c *checked) grants() Grants {
	return Grants{
		Capabilities: c.spec.Capabilities, Config: extismConfig(c.config),
		MemoryPages: uint32(c.spec.memoryPages()), HostCalls: c.spec.HostCalls,
	}
}

func (s Spec) memoryPages() int {
	if s.MemoryMB == 0 {
		return hostabi.DefaultMemoryPages
	}
	return s.MemoryMB * (1 << 20 / hostabi.PageBytes)
}

// granted are the capabilities that the module asks for and that are granted.
func (c *checked) granted() []string {
	granted := []string{}
	for _, asked := range c.module.Asked() {
		if slices.Contains(c.spec.Capabilities, asked) {
			granted = append(granted, asked)
		}
	}
	return granted
}

// checkedAhead reports whether nothing has to be compiled or run to know that
// the policy loads: it comes with the program, and is given nothing that it
// could have an opinion on.
func (c *checked) checkedAhead() bool {
	return strings.HasPrefix(c.spec.Module, builtinPrefix) && string(c.config) == "{}"
}

func (c *checked) info(engine string) dsh.PolicyInfo {
	info := dsh.PolicyInfo{
		Name: c.spec.Name, Digest: c.digest, ConfigSHA256: digest(c.config), Engine: engine,
		Source: c.spec.Module, ABI: hostabi.ABI, Asked: c.module.Asked(), Granted: c.granted(),
		Hooks: c.module.Hooks(), Config: c.config, FailOnFault: c.spec.FailOnFault,
	}
	if m := c.module.Manifest; m != nil {
		info.Version, info.Description = m.Version, m.Description
	}
	return info
}

// extismConfig is a policy's config as Extism's config_get answers it: strings
// as they are, everything else as JSON.
func extismConfig(config json.RawMessage) map[string]string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(config, &fields) != nil {
		return nil
	}
	values := make(map[string]string, len(fields))
	for key, raw := range fields {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		values[key] = text
	}
	return values
}

// objectOf makes a config's JSON compact; nothing is an empty object.
func objectOf(raw json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return json.RawMessage("{}"), nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return json.RawMessage("{}"), fmt.Errorf("it is not JSON: %w", err)
	}
	if b.Bytes()[0] != '{' {
		return json.RawMessage("{}"), fmt.Errorf("it is not an object")
	}
	if b.Len() > hostabi.MaxInputBytes/2 {
		return json.RawMessage("{}"), fmt.Errorf("it has %d bytes, and at most %d are allowed", b.Len(), hostabi.MaxInputBytes/2)
	}
	return b.Bytes(), nil
}

// defaultDeadline is how long a decision may take. Fuel ends a guest long
// before; a time on the wall is the last resort.
const defaultDeadline = time.Second

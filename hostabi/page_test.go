package hostabi_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

var updatePage = flag.Bool("update", false, "write ABI.md anew")

// TestPageIsCurrent makes ABI.md of the constants and the schemas, and compares.
func TestPageIsCurrent(t *testing.T) {
	want := page(t)
	if *updatePage {
		if err := os.WriteFile("ABI.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("ABI.md")
	if err != nil || string(have) != want {
		t.Errorf("%v: ABI.md is not what the constants and schemas say: go test ./hostabi -run Page -update", err)
	}
}

// page is the ABI for people.
func page(t *testing.T) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("<!-- Made by `go test ./hostabi -run Page -update` of the constants and schemas of this package. -->")
	say("# The guest ABI: `%s`\n", hostabi.ABI)
	say("A recovery policy is one core WebAssembly module. Bytes go in and out through Extism's kernel (`%s`); what is dsh's own is in the import namespace `%s`, which is also the ABI's name. A policy decides, and never waits, sends or stores: what is to be done it says as data.\n", hostabi.NamespaceKernel, hostabi.ABI)
	say("## Exports\n\nEach is a function of no parameters that returns an i32. 0 is success; anything else is a fault.\n")
	say("| export | | input | output |\n|---|---|---|---|")
	say("| `%s` | required: a model request failed | [RecoverInput](#recoverinput) | [Decision](#decision) |", hostabi.ExportRecover)
	say("| `%s` | optional: a request is about to be built | [StepInput](#stepinput) | [StepAnswer](#stepanswer) |", hostabi.ExportBeforeStep)
	say("| `%s` | optional: asked at load over the policy's own config | the config | [ConfigAnswer](#configanswer) |", hostabi.ExportCheckConfig)
	say("| `%s` | optional: warms a fresh instance, before there is an input; its clock and its random numbers are the same each time, no host function answers, and the host may begin other instances in the state that it leaves | nothing | nothing |", hostabi.ExportWarm)
	say("\nThe memory is exported as `memory`. A reactor's `_initialize` is run before the first call. There is no start function.\n")
	payload(t, &b, hostabi.SchemaRecoverInput, "")
	payload(t, &b, hostabi.SchemaDecision, "")
	say("### StepInput\n\nA RecoverInput without `failure`, `failedAtMs` and `providerNotBeforeMs`. Schema: [%[1]s](schema/%[1]s).\n", hostabi.SchemaStepInput)
	payload(t, &b, hostabi.SchemaStepAnswer, "")
	payload(t, &b, hostabi.SchemaConfigAnswer, "")
	say("## Manifest\n\nA custom section `%s` of the module, read without running anything. A module without one speaks `%s`, asks for nothing and has no version. `dsh policy pack` writes it.\n", hostabi.ManifestSection, hostabi.ABI)
	payload(t, &b, hostabi.SchemaManifest, "")
	say("## Capabilities\n\nA policy may do what its manifest asks for and dsh.toml grants.\n\n%s\n", list(hostabi.Capabilities()))
	hostFunctions(t, &b)
	allowedImports(&b)
	pageLimits(&b)
	say("## Faults\n\nA policy that gives no decision is asked no further: the next one is. The log has the kind.\n")
	say("%s\n", list(faultKinds()))
	say("## Codes of failures\n\n%s\n\nThe first five usually pass by themselves.", list(dsh.Codes()))
	return b.String()
}

func faultKinds() []dsh.FaultKind {
	return []dsh.FaultKind{dsh.FaultFuel, dsh.FaultStack, dsh.FaultMemory, dsh.FaultTrap, dsh.FaultExit, dsh.FaultOutput, dsh.FaultSchema,
		dsh.FaultHostCalls, dsh.FaultDeadline, dsh.FaultDenied, dsh.FaultUnavailable}
}

func list[T ~string](words []T) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, "`"+string(w)+"`")
	}
	return strings.Join(quoted, ", ")
}

// payload is a schema as tables: of the object, and of each definition.
func payload(t *testing.T, b *strings.Builder, name, heading string) {
	s := schema(t, name)
	title, _ := s["title"].(string)
	if heading == "" {
		heading = "### " + title
	}
	about, _ := s["description"].(string)
	fmt.Fprintf(b, "%[1]s\n\n%[2]s Schema: [%[3]s](schema/%[3]s).\n\n", heading, about, name)
	fields(b, s)
	defs, _ := s["$defs"].(object)
	for _, d := range slices.Sorted(maps.Keys(defs)) {
		def := defs[d].(object)
		about, _ := def["description"].(string)
		if def["properties"] == nil {
			fmt.Fprintf(b, "**%s** (%s): %s\n\n", d, kindOf(def), about)
			continue
		}
		fmt.Fprintf(b, "**%s**%s\n\n", d, strings.TrimRight(": "+about, ": "))
		fields(b, def)
	}
}

func fields(b *strings.Builder, s object) {
	properties, _ := s["properties"].(object)
	if len(properties) == 0 {
		return
	}
	required := map[any]bool{}
	if names, ok := s["required"].([]any); ok {
		for _, n := range names {
			required[n] = true
		}
	}
	fmt.Fprintln(b, "| field | | |\n|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p := properties[name].(object)
		about, _ := p["description"].(string)
		need := "optional"
		if required[name] {
			need = "required"
		}
		fmt.Fprintf(b, "| `%s` | %s, %s | %s |\n", name, need, kindOf(p), strings.ReplaceAll(about, "|", "\\|"))
	}
	fmt.Fprintln(b)
}

// kindOf is the type of a field in words.
func kindOf(p object) string {
	if ref, ok := p["$ref"].(string); ok {
		return strings.TrimPrefix(ref, "#/$defs/")
	}
	if v, ok := p["const"]; ok {
		raw, _ := json.Marshal(v)
		return "`" + string(raw) + "`"
	}
	if values, ok := p["enum"].([]any); ok {
		var words []string
		for _, v := range values {
			raw, _ := json.Marshal(v)
			words = append(words, "`"+string(raw)+"`")
		}
		return strings.Join(words, " ")
	}
	kind := fmt.Sprint(p["type"])
	if kinds, ok := p["type"].([]any); ok {
		var words []string
		for _, k := range kinds {
			words = append(words, fmt.Sprint(k))
		}
		kind = strings.Join(words, " or ")
	}
	if items, ok := p["items"].(object); ok {
		kind += " of " + kindOf(items)
	}
	if p["type"] == nil {
		kind = "any JSON"
	}
	for _, bound := range []struct{ keyword, words string }{
		{"minimum", "from %v"}, {"exclusiveMinimum", "over %v"}, {"maximum", "to %v"}, {"exclusiveMaximum", "below %v"}, {"maxLength", "up to %v bytes"},
	} {
		if v, ok := p[bound.keyword].(float64); ok {
			kind += " " + fmt.Sprintf(bound.words, number(v))
		}
	}
	return kind
}

func number(v float64) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

func hostFunctions(t *testing.T, b *strings.Builder) {
	fmt.Fprintf(b, "## Host functions\n\nImported from `%s`, each of type `(i64) -> i64`: it takes the handle of a block with a JSON object and gives that of another. An import that is not granted keeps the module from being loaded. An answer with an `err` is a refusal, a value to decide by: ", hostabi.ABI)
	fmt.Fprintf(b, "%s. Each call and its answer are in the log.\n\n", list([]string{hostabi.CodeDenied, hostabi.CodeInvalid, hostabi.CodeConflict, hostabi.CodeTooLarge, hostabi.CodeTooMany, hostabi.CodeUnavailable}))
	for _, f := range []struct{ name, argument, answer string }{
		{hostabi.FuncLogRead, hostabi.SchemaLogRead, hostabi.SchemaLogAnswer}, {hostabi.FuncSurfaceRead, hostabi.SchemaSurfaceRead, hostabi.SchemaSurfaceAnswer},
		{hostabi.FuncStateGet, hostabi.SchemaStateGet, hostabi.SchemaStateAnswer}, {hostabi.FuncStatePut, hostabi.SchemaStatePut, hostabi.SchemaPutAnswer},
		{hostabi.FuncEmit, hostabi.SchemaEmit, hostabi.SchemaEmitAnswer},
	} {
		var needs []string
		for _, c := range hostabi.Capabilities() {
			if slices.ContainsFunc(hostabi.Granted([]string{c}, []string{c}), func(i hostabi.Import) bool { return i.Name == f.name }) {
				needs = append(needs, c)
			}
		}
		if len(needs) == 0 {
			t.Errorf("no capability lets a policy import %s", f.name)
		}
		fmt.Fprintf(b, "### %s\n\nTakes the capability %s.\n\n", f.name, strings.ReplaceAll(list(needs), ", ", " or "))
		payload(t, b, f.argument, "**The argument.**")
		payload(t, b, f.answer, "**The answer.**")
	}
}

func allowedImports(b *strings.Builder) {
	fmt.Fprintf(b, "## Imports that need no grant\n\nNothing else may be imported: no network, no Extism variables, no namespace of anybody else's. WASI answers with no argument, variable, file or socket behind it; its clock shows `nowMs`, and its random numbers are seeded by `random`.\n\n")
	for _, namespace := range []string{hostabi.NamespaceKernel, hostabi.NamespaceWASI} {
		fmt.Fprintf(b, "**`%s`**: ", namespace)
		var all []string
		for _, f := range hostabi.Allowed() {
			if f.Module == namespace {
				all = append(all, fmt.Sprintf("`%s %s`", f.Name, f.Type))
			}
		}
		fmt.Fprintf(b, "%s\n\n", strings.Join(all, ", "))
	}
}

func pageLimits(b *strings.Builder) {
	fmt.Fprintf(b, "## Limits\n\n| | |\n|---|---|\n")
	for _, l := range []struct {
		about string
		n     int
		unit  string
	}{
		{"a module", hostabi.MaxModuleBytes, "bytes"}, {"its manifest", hostabi.MaxManifestBytes, "bytes"},
		{"functions that it defines", hostabi.MaxFunctions, ""}, {"imports", hostabi.MaxImports, ""}, {"exports", hostabi.MaxExports, ""}, {"types", hostabi.MaxTypes, ""},
		{"its memory, if the configuration does not say", hostabi.DefaultMemoryPages, "pages of 64 KiB"}, {"and at the least", hostabi.MinMemoryPages, "pages"}, {"and at the most", hostabi.MaxMemoryPages, "pages"},
		{"an input", hostabi.MaxInputBytes, "bytes"}, {"an output", hostabi.MaxOutputBytes, "bytes"},
		{"host calls of a decision", hostabi.MaxHostCalls, ""}, {"the argument of one", hostabi.MaxArgumentBytes, "bytes"}, {"its answer", hostabi.MaxAnswerBytes, "bytes"},
		{"events or entries in an answer", hostabi.MaxPage, ""},
		{"a stored value, or an emitted event's data", hostabi.MaxValueBytes, "bytes"}, {"a key of the memory", hostabi.MaxKeyBytes, "bytes"}, {"keys with a value, of one policy in one scope", hostabi.MaxKeys, ""},
		{"lines logged in a decision", hostabi.MaxLogLines, ""}, {"and over all lines", hostabi.MaxLogBytes, "bytes"},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", l.about, strings.TrimSpace(fmt.Sprintf("%d %s", l.n, l.unit)))
	}
	fmt.Fprintf(b, "\nInstructions are counted (fuel), and so is the depth of calls: a program that does not end is stopped after a quarter of a second of processor time at most.\n\n")
}

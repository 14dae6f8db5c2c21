package wasmtest

import "strings"

// Floods are programs that do their harm through functions of the host: those
// of Extism's kernel, of WASI, and of the policies' ABI. Each is an export of
// the given name and of type () -> i32, and each ends by what is done about it
// alone. Those that need a capability name it.
func Floods(name string) map[string]Flood {
	const (
		kernel = "extism:host/env"
		wasi   = "wasi_snapshot_preview1"
		abi    = "dsh:policy/v1"
		all    = 12 << 20 // of the kernel's memory
	)
	var (
		none = []byte{}
		i    = []byte{I32}
		l    = []byte{I64}
	)
	// A program is made of the functions that it imports, by their place, and of
	// its body, in a loop or before one. Local 0 is an i64, local 1 an i32.
	type imported struct {
		module, name    string
		params, results []byte
	}
	alloc := imported{kernel, "alloc", l, l}
	free := imported{kernel, "free", l, none}
	length := imported{kernel, "length", l, l}
	store := imported{kernel, "store_u64", []byte{I64, I64}, none}
	output := imported{kernel, "output_set", []byte{I64, I64}, none}
	with := func(before, body []byte, functions ...imported) Flood {
		return Flood{Write: func(m *Module) {
			hook := m.Type(nil, []byte{I32})
			for _, f := range functions {
				m.Import(f.module, f.name, m.Type(f.params, f.results))
			}
			m.Memory(256)
			m.Export("memory", 2, 0)
			m.ExportFunc(name, m.FuncLocals(hook, []byte{I64, I32}, before, Loop(Empty, body, Br(0)), Op(Unreachable)))
		}}
	}
	granted := func(capability string, f Flood) Flood {
		f.Capability = capability
		return f
	}
	block := func(n int64) []byte { return Seq(I64Const(n), Call(0), Set(0)) }
	// times repeats a body so often.
	times := func(n int32, body []byte) []byte {
		return Seq(I32Const(n), Set(1), Loop(Empty, body, Get(1), I32Const(1), Op(I32Sub), Tee(1), BrIf(0)))
	}
	drop := Op(Drop)
	return map[string]Flood{
		"small blocks":        with(nil, Seq(I64Const(1), Call(0), drop), alloc),
		"large blocks":        with(nil, Seq(I64Const(1<<20), Call(0), drop), alloc),
		"a block of all":      with(nil, Seq(I64Const(1<<62), Call(0), drop, I64Const(-13), Call(0), drop), alloc),
		"blocks given back":   with(nil, Seq(I64Const(64), Call(0), Call(1)), alloc, free),
		"lengths of no block": with(times(5000, Seq(I64Const(8), Call(0), drop)), Seq(I64Const(900_000), Call(1), drop), alloc, length),
		"forged blocks": with(Seq(block(64), I64Const(65), I64Const(-51539607549), Call(1)), // a size of -12: the block is its own next
			Seq(I64Const(1000), Call(2), drop), alloc, store, length),
		"forged figures": with(Seq(I64Const(9), I64Const(-1), Call(1), I64Const(17), I64Const(-1), Call(1)),
			Seq(I64Const(100), Call(0), drop), alloc, store),
		"stores all over": with(nil, Seq(Get(0), I64Const(4099), Op(I64Add), I64Const(0xfffff), Op(0x83), Tee(0), I64Const(1), Call(0)), store),
		"all of both memories": {Write: func(m *Module) {
			// The guest's and the kernel's, also in an instance that is only warm.
			m.Import(kernel, "alloc", m.Type(l, l))
			m.Import(kernel, "store_u64", m.Type([]byte{I64, I64}, none))
			m.Memory(1)
			f := m.FuncLocals(m.Type(nil, i), []byte{I64, I64},
				I32Const(255), Op(0x40, 0), drop, I32Const(0), I32Const(1), I32Const(16<<20), Misc(11), Op(0),
				I64Const(14<<20), Call(0), Set(0),
				Loop(Empty, Get(0), Get(1), Op(I64Add), I64Const(-1), Call(1),
					Get(1), I64Const(4096), Op(I64Add), Tee(1), I64Const(14<<20), Op(0x53), BrIf(0)),
				I32Const(0))
			m.ExportFunc(name, f)
			m.ExportFunc("warm", f)
		}},
		"outputs":         with(block(100), Seq(Get(0), I64Const(100), Call(1)), alloc, output),
		"an error of all": with(block(all), Seq(Get(0), Call(1)), alloc, imported{kernel, "error_set", l, none}),
		"log lines":       with(nil, Seq(I64Const(40), Call(0), Call(1)), alloc, imported{kernel, "log_error", l, none}),
		"log lines of all": with(nil, Seq(I64Const(all), Call(0), Call(1)), alloc,
			imported{kernel, "log_info", l, none}),
		"config of all": with(block(all), Seq(Get(0), Call(1), drop), alloc, imported{kernel, "config_get", l, l}),

		"random numbers":        with(nil, Seq(I32Const(0), I32Const(16<<20), Call(0), drop), imported{wasi, "random_get", []byte{I32, I32}, i}),
		"small random numbers":  with(nil, Seq(I32Const(0), I32Const(100), Call(0), drop), imported{wasi, "random_get", []byte{I32, I32}, i}),
		"writes of nothing":     with(nil, Seq(I32Const(2), I32Const(0), I32Const(2<<20), I32Const(0), Call(0), drop), imported{wasi, "fd_write", []byte{I32, I32, I32, I32}, i}),
		"reads of nothing":      with(nil, Seq(I32Const(0), I32Const(0), I32Const(2<<20), I32Const(0), Call(0), drop), imported{wasi, "fd_read", []byte{I32, I32, I32, I32}, i}),
		"writes to stderr":      with(Seq(I32Const(4), I32Const(1<<20), Op(0x36, 2, 0)), Seq(I32Const(2), I32Const(0), I32Const(1), I32Const(64), Call(0), drop), imported{wasi, "fd_write", []byte{I32, I32, I32, I32}, i}),
		"polls":                 with(nil, Seq(I32Const(0), I32Const(8<<20), I32Const(170_000), I32Const(16<<20-8), Call(0), drop), imported{wasi, "poll_oneoff", []byte{I32, I32, I32, I32}, i}),
		"long paths":            with(Seq(I32Const(0), I32Const('a'), I32Const(16<<20), Misc(11), Op(0)), Seq(I32Const(3), I32Const(0), I32Const(16<<20), Call(0), drop), imported{wasi, "path_unlink_file", []byte{I32, I32, I32}, i}),
		"looks at the clock":    with(nil, Seq(I32Const(0), I64Const(0), I32Const(0), Call(0), drop), imported{wasi, "clock_time_get", []byte{I32, I64, I32}, i}),
		"yields":                with(nil, Seq(Call(0), drop), imported{wasi, "sched_yield", none, i}),
		"files that are opened": with(nil, Seq(Repeat(9, I32Const(3)), drop, drop, drop, drop, I64Const(-1), I64Const(-1), I32Const(0), I32Const(0), Call(0), drop), imported{wasi, "path_open", []byte{I32, I32, I32, I32, I32, I64, I64, I32, I32}, i}),
		"calls of host functions": granted("log.read", with(block(8), Seq(Get(0), Call(1), drop), alloc,
			imported{abi, "log_read", l, l})),
		"arguments of all": granted("log.append", with(block(all), Seq(Get(0), Call(1), drop), alloc,
			imported{abi, "emit", l, l})),
		"states": granted("state.shared", with(block(4096), Seq(Get(0), Call(1), drop), alloc,
			imported{abi, "state_put", l, l})),
		"arguments of nothing": granted("surface.read", with(nil, Seq(I64Const(-1), Call(0), drop, I64Const(0), Call(0), drop),
			imported{abi, "surface_read", l, l})),
	}
}

// A Flood is a program that floods the host.
type Flood struct {
	Write      func(m *Module)
	Capability string // that it asks for; "": none
}

// Answer adds an export of a name and of type () -> i32 whose output, by
// Extism's kernel, is the text. The module imports nothing else, and has no
// memory of its own before.
func Answer(m *Module, name, text string) {
	const kernel = "extism:host/env"
	const at, block = 0, 1 // locals
	alloc := m.Import(kernel, "alloc", m.Type([]byte{I64}, []byte{I64}))
	store := m.Import(kernel, "store_u8", m.Type([]byte{I64, I32}, nil))
	output := m.Import(kernel, "output_set", m.Type([]byte{I64, I64}, nil))
	m.Memory(uint32(len(text)>>16) + 1)
	m.Data(0, []byte(text))
	m.ExportFunc(name, m.FuncLocals(m.Type(nil, []byte{I32}), []byte{I32, I64},
		I64Const(int64(len(text))), Call(alloc), Set(block),
		Loop(Empty,
			Get(block), Get(at), Op(0xad), Op(I64Add), Get(at), Op(0x2d, 0, 0), Call(store),
			Get(at), I32Const(1), Op(I32Add), Tee(at), I32Const(int32(len(text))), Op(I32LtS), BrIf(0)),
		Get(block), I64Const(int64(len(text))), Call(output), I32Const(0)))
}

// Answers are decisions that are made to be slow, large or misleading to read,
// each within the 64 KiB of an output.
func Answers() map[string]string {
	nested := func(n int, open, middle, end string) string {
		return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
	}
	return map[string]string{
		"fallbacks of fallbacks":    `{"kind":"delegate","fallback":` + nested(1600, `{"kind":"retry","delayMs":0,"fallback":`, "null", "}") + "}",
		"delegates of delegates":    nested(2000, `{"kind":"delegate","fallback":`, `{"kind":"delegate"}`, "}"),
		"lists of lists":            `{"kind":"delegate","x":` + nested(9000, "[", "", "]") + "}",
		"more lists than are read":  `{"kind":"delegate","x":` + nested(30_000, "[", "", "]") + "}",
		"repairs":                   `{"kind":"retry","delayMs":0,"repairs":[` + strings.Repeat(`{"kind":"prune"},`, 3700) + `{"kind":"prune"}]}`,
		"a repair of many events":   `{"kind":"retry","delayMs":0,"repairs":[{"kind":"prune","seqs":[` + strings.Repeat("1,", 30_000) + "1]}]}",
		"a number of many digits":   `{"kind":"retry","delayMs":` + strings.Repeat("9", 64_000) + "e-63999}",
		"a number with an exponent": `{"kind":"retry","delayMs":1e-999999999999,"maxRetries":1e18}`,
		"control characters":        `{"kind":"delegate","reason":"` + strings.Repeat(`\u001b]0;x\u0007\u202e\r\n\u0000\ud800`, 1500) + `"}`,
		"names more than once":      `{"kind":"delegate","Kind":"retry","KIND":"retry","delayms":0` + strings.Repeat(`,"kind":"retry"`, 4000) + "}",
		"nothing but spaces":        strings.Repeat(" ", 65_000) + `{"kind":"delegate"}`,
	}
}

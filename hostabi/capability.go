package hostabi

import (
	"slices"
	"strings"
)

// The capabilities. A policy may do what its manifest asks for and the
// configuration grants.
const (
	CapLogRead        = "log.read"
	CapLogAppend      = "log.append"
	CapSurfaceRead    = "surface.read"
	CapSurfaceContent = "surface.content" // the text, on top of surface.read
	CapStateSession   = "state.session"
	CapStateShared    = "state.shared" // a channel between sessions
	CapRepairPrune    = "repair.prune"
	CapRepairCompact  = "repair.compact"
)

// Capabilities returns all capabilities.
func Capabilities() []string {
	return []string{
		CapLogRead, CapLogAppend, CapSurfaceRead, CapSurfaceContent,
		CapStateSession, CapStateShared, CapRepairPrune, CapRepairCompact,
	}
}

// hostFunction is a function of namespace ABI, with the capabilities of which
// one has to be granted to import it.
type hostFunction struct {
	name  string
	anyOf []string
}

func (f hostFunction) within(capabilities []string) bool {
	return slices.ContainsFunc(f.anyOf, func(c string) bool { return slices.Contains(capabilities, c) })
}

func hostFunctions() []hostFunction {
	return []hostFunction{
		{"log_read", []string{CapLogRead}},
		{"surface_read", []string{CapSurfaceRead}},
		{"state_get", []string{CapStateSession, CapStateShared}},
		{"state_put", []string{CapStateSession, CapStateShared}},
		{"emit", []string{CapLogAppend}},
	}
}

// kernelFunctions are the functions of Extism's kernel that a guest may
// import, with the letters of their types. Its http_request, http_status_code,
// http_headers, var_get and var_set are left out: they would be a network and a
// memory that nothing grants. Source of the types: Extism's runtime kernel
// (EIP-007).
const kernelFunctions = `
alloc          I I
free           I
length         I I
length_unsafe  I I
load_u8        I i
load_u64       I I
store_u8       Ii
store_u64      II
input_offset   - I
input_length   - I
input_load_u8  I i
input_load_u64 I I
output_set     II
error_set      I
config_get     I I
get_log_level  - i
log_trace      I
log_debug      I
log_info       I
log_warn       I
log_error      I
`

// wasiFunctions are the functions of WASI preview 1, all of which answer, with
// no argument, variable, file or socket behind them. Source of the types: the
// witx of wasi_snapshot_preview1.
const wasiFunctions = `
args_get                ii i
args_sizes_get          ii i
clock_res_get           ii i
clock_time_get          iIi i
environ_get             ii i
environ_sizes_get       ii i
fd_advise               iIIi i
fd_allocate             iII i
fd_close                i i
fd_datasync             i i
fd_fdstat_get           ii i
fd_fdstat_set_flags     ii i
fd_fdstat_set_rights    iII i
fd_filestat_get         ii i
fd_filestat_set_size    iI i
fd_filestat_set_times   iIIi i
fd_pread                iiiIi i
fd_prestat_dir_name     iii i
fd_prestat_get          ii i
fd_pwrite               iiiIi i
fd_read                 iiii i
fd_readdir              iiiIi i
fd_renumber             ii i
fd_seek                 iIii i
fd_sync                 i i
fd_tell                 ii i
fd_write                iiii i
path_create_directory   iii i
path_filestat_get       iiiii i
path_filestat_set_times iiiiIIi i
path_link               iiiiiii i
path_open               iiiiiIIii i
path_readlink           iiiiii i
path_remove_directory   iii i
path_rename             iiiiii i
path_symlink            iiiii i
path_unlink_file        iii i
poll_oneoff             iiii i
proc_exit               i
proc_raise              i i
random_get              ii i
sched_yield             - i
sock_accept             iii i
sock_recv               iiiiii i
sock_send               iiiii i
sock_shutdown           ii i
`

// Allowed returns every function that any guest may import, with its type:
// those of Extism's kernel and of WASI. The functions of namespace ABI are not
// among them, since each has to be granted.
func Allowed() []Import {
	return append(functions(NamespaceKernel, kernelFunctions), functions(NamespaceWASI, wasiFunctions)...)
}

// Granted returns the functions of namespace ABI that a guest may import,
// given what its manifest asks for and what is granted to it. Each takes the
// handle of an argument, and gives that of an answer.
func Granted(asked, granted []string) []Import {
	var all []Import
	for _, f := range hostFunctions() {
		if f.within(asked) && f.within(granted) {
			all = append(all, Import{Module: ABI, Name: f.name, Kind: ExternFunc,
				Type: FuncType{Params: []ValueType{ValueI64}, Results: []ValueType{ValueI64}}})
		}
	}
	return all
}

// functions reads a table of functions: a name, the types of its parameters
// (i is an i32, I an i64, - none) and that of its result, if it has one.
func functions(namespace, table string) []Import {
	var all []Import
	for line := range strings.Lines(table) {
		fields := append(strings.Fields(line), "")
		if len(fields) < 3 {
			continue
		}
		all = append(all, Import{
			Module: namespace, Name: fields[0], Kind: ExternFunc,
			Type: FuncType{Params: letters(fields[1]), Results: letters(fields[2])},
		})
	}
	return all
}

func letters(word string) []ValueType {
	types := []ValueType{}
	for _, c := range word {
		switch c {
		case 'i':
			types = append(types, ValueI32)
		case 'I':
			types = append(types, ValueI64)
		}
	}
	return types
}

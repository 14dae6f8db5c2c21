// Package wasi is WASI preview 1 with nothing behind it: no argument, no
// variable, no file, no socket. Standard input is at its end, standard output
// is thrown away, and standard error is kept for a fault's message. Clocks and
// random numbers are those of the decision. It answers as wazero's own does
// where that has nothing behind it, so that a guest cannot tell the two apart.
//
// What is done by a length that the guest chooses is to be charged for before
// it is done: see [Work].
//
// Source: the witx of wasi_snapshot_preview1.
package wasi

import (
	"encoding/binary"

	"github.com/dsh-agent/dsh/runtime/internal/guest"
)

// Memory is the guest's linear memory. wazero's api.Memory is one.
type Memory interface {
	// Read is a view of the memory; false: it is not all within it.
	Read(offset, bytes uint32) ([]byte, bool)
}

// A Process is what one instance sees of WASI. It is for one goroutine at a
// time. The zero value, with its fields set, has the three standard files open.
type Process struct {
	World *guest.World

	closed [3]bool
}

// Errno is what a function of WASI returns.
type Errno = uint32

// The errors that are given.
const (
	success     Errno = 0
	errBadf     Errno = 8
	errFault    Errno = 21
	errInval    Errno = 28
	errIo       Errno = 29
	errLongName Errno = 37
	errNosys    Errno = 52
	errNotdir   Errno = 54
	errNotsup   Errno = 58
	errPerm     Errno = 63
	stdin             = 0
	stdout            = 1
	stderr            = 2
)

// ProcExit is the one function that is not among [Functions]: it does not
// return.
const ProcExit = "proc_exit"

// A Function runs with the arguments of a call.
type Function func(p *Process, mem Memory, args []uint64) Errno

// Lookup finds a function by its name.
func Lookup(name string) (Function, bool) {
	f, ok := table()[name]
	return f, ok
}

func table() map[string]Function {
	return map[string]Function{
		"args_get":          nothing,
		"args_sizes_get":    noSizes,
		"environ_get":       nothing,
		"environ_sizes_get": noSizes,
		"clock_res_get":     clockResolution,
		"clock_time_get":    clockTime,
		"random_get":        random,
		"sched_yield":       func(*Process, Memory, []uint64) Errno { return success },
		"proc_raise":        unsupported,
		"poll_oneoff":       poll,

		"fd_advise":             advise,
		"fd_allocate":           allocate,
		"fd_close":              closeFile,
		"fd_datasync":           open,
		"fd_fdstat_get":         fdstat,
		"fd_fdstat_set_flags":   setFlags,
		"fd_fdstat_set_rights":  unsupported,
		"fd_filestat_get":       filestat,
		"fd_filestat_set_size":  openUnsupported,
		"fd_filestat_set_times": setTimes,
		"fd_pread":              func(p *Process, mem Memory, a []uint64) Errno { return p.read(mem, a, true) },
		"fd_prestat_dir_name":   prestatName,
		"fd_prestat_get":        prestat,
		"fd_pwrite":             func(p *Process, mem Memory, a []uint64) Errno { return p.write(mem, a, true) },
		"fd_read":               func(p *Process, mem Memory, a []uint64) Errno { return p.read(mem, a, false) },
		"fd_readdir":            readdir,
		"fd_renumber":           renumber,
		"fd_seek":               openUnsupported,
		"fd_sync":               open,
		"fd_tell":               openUnsupported,
		"fd_write":              func(p *Process, mem Memory, a []uint64) Errno { return p.write(mem, a, false) },

		"path_create_directory":   at(0, 1),
		"path_filestat_get":       at(0, 2),
		"path_filestat_set_times": pathSetTimes,
		"path_link":               at(0, 2),
		"path_open":               at(0, 2),
		"path_readlink":           readlink,
		"path_remove_directory":   at(0, 1),
		"path_rename":             at(0, 1),
		"path_symlink":            symlink,
		"path_unlink_file":        at(0, 1),

		"sock_accept":   bad,
		"sock_recv":     bad,
		"sock_send":     send,
		"sock_shutdown": bad,
	}
}

// Work is what a call has to do beyond what every call costs, as the number of
// bytes that could be copied in the time. It depends on lengths among the
// arguments, which count up to the size of the guest's memory.
func Work(name string, args []uint64, memory uint32) uint64 {
	bytes := func(k int, each uint64) uint64 { return min(uint64(uint32(args[k]))*each, uint64(memory)) }
	switch name {
	case "random_get":
		return 8 * bytes(1, 1)
	case "fd_write", "fd_read", "fd_pwrite", "fd_pread":
		return 4 * bytes(2, 8) // the list of buffers
	case "poll_oneoff":
		return 2 * bytes(2, 48)
	case "path_create_directory", "path_remove_directory", "path_unlink_file", "path_rename":
		return 8 * bytes(2, 1) // the path is looked at byte by byte
	case "path_readlink":
		return 8 * bytes(2, 1)
	case "path_filestat_get", "path_filestat_set_times", "path_link", "path_open":
		return 8 * bytes(3, 1)
	}
	return 0
}

// isOpen reports whether a file is one of the three, and still open.
func (p *Process) isOpen(fd uint64) bool {
	n := int32(fd)
	return n >= stdin && n <= stderr && !p.closed[n]
}

func put32(mem Memory, at uint64, v uint32) Errno {
	b, ok := mem.Read(uint32(at), 4)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint32(b, v)
	return success
}

func put64(mem Memory, at, v uint64) Errno {
	b, ok := mem.Read(uint32(at), 8)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint64(b, v)
	return success
}

// nothing writes no bytes to two places, which have to be in the memory.
func nothing(_ *Process, mem Memory, a []uint64) Errno {
	for _, at := range a[:2] {
		if _, ok := mem.Read(uint32(at), 0); !ok {
			return errFault
		}
	}
	return success
}

func unsupported(*Process, Memory, []uint64) Errno { return errNosys }

func bad(*Process, Memory, []uint64) Errno { return errBadf }

// noSizes says that there are none, of no bytes.
func noSizes(_ *Process, mem Memory, a []uint64) Errno {
	if err := put32(mem, a[0], 0); err != success {
		return err
	}
	return put32(mem, a[1], 0)
}

// The clocks.
const (
	clockRealtime  = 0
	clockMonotonic = 1
)

func clockResolution(_ *Process, mem Memory, a []uint64) Errno {
	if id := uint32(a[0]); id != clockRealtime && id != clockMonotonic {
		return errInval
	}
	return put64(mem, a[1], 1)
}

func clockTime(p *Process, mem Memory, a []uint64) Errno {
	var now int64
	switch uint32(a[0]) {
	case clockRealtime:
		sec, ns := p.World.Walltime()
		now = sec*1_000_000_000 + int64(ns)
	case clockMonotonic:
		now = p.World.Nanotime()
	default:
		return errInval
	}
	return put64(mem, a[2], uint64(now))
}

func random(p *Process, mem Memory, a []uint64) Errno {
	b, ok := mem.Read(uint32(a[0]), uint32(a[1]))
	if !ok {
		return errFault
	}
	if _, err := p.World.Read(b); err != nil {
		return errIo
	}
	return success
}

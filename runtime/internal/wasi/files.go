package wasi

import (
	"encoding/binary"
	"io/fs"
	"path"
)

// open is what can be done to a file that is there, and does nothing.
func open(p *Process, _ Memory, a []uint64) Errno {
	if !p.isOpen(a[0]) {
		return errBadf
	}
	return success
}

// openUnsupported is what cannot be done to a file that is there.
func openUnsupported(p *Process, _ Memory, a []uint64) Errno {
	if !p.isOpen(a[0]) {
		return errBadf
	}
	return errNosys
}

func advise(p *Process, mem Memory, a []uint64) Errno {
	const last = 5 // noreuse
	if err := open(p, mem, a); err != success || byte(a[3]) <= last {
		return err
	}
	return errInval
}

func allocate(p *Process, mem Memory, a []uint64) Errno {
	if err := open(p, mem, a); err != success {
		return err
	}
	switch tail := int64(a[1] + a[2]); {
	case tail < 0:
		return errInval
	case tail == 0:
		return success
	}
	return errNosys
}

func closeFile(p *Process, mem Memory, a []uint64) Errno {
	if err := open(p, mem, a); err != success {
		return err
	}
	p.closed[int32(a[0])] = true
	return success
}

// prestat says that the standard files are folders without a name, as wazero
// does.
func prestat(p *Process, mem Memory, a []uint64) Errno {
	if err := open(p, mem, a); err != success {
		return err
	}
	return put64(mem, a[1], 0)
}

func prestatName(p *Process, mem Memory, a []uint64) Errno {
	if err := open(p, mem, a); err != success {
		return err
	}
	if uint32(a[2]) > 0 {
		return errLongName
	}
	if _, ok := mem.Read(uint32(a[1]), 0); !ok {
		return errFault
	}
	return success
}

const (
	typeDevice = 1 // that the standard files are, as wazero has them

	// rightsFile are those of a file: to read, write, seek, tell, sync, and to
	// change its flags, its size and its times.
	rightsFile = 1<<9 - 1 | 1<<21 | 1<<22 | 1<<23 | 1<<27
)

func fdstat(p *Process, mem Memory, a []uint64) Errno {
	b, ok := mem.Read(uint32(a[1]), 24)
	if !ok {
		return errFault
	}
	if !p.isOpen(a[0]) {
		return errBadf
	}
	clear(b)
	b[0] = typeDevice
	binary.LittleEndian.PutUint64(b[8:], rightsFile)
	return success
}

func setFlags(p *Process, _ Memory, a []uint64) Errno {
	const nonblock, synchronous = 1 << 2, 1<<1 | 1<<3 | 1<<4
	switch flags := uint16(a[1]); {
	case flags&synchronous != 0:
		return errInval
	case !p.isOpen(a[0]):
		return errBadf
	case flags&nonblock != 0:
		return errNosys
	}
	return success
}

func filestat(p *Process, mem Memory, a []uint64) Errno {
	b, ok := mem.Read(uint32(a[1]), 64)
	if !ok {
		return errFault
	}
	if !p.isOpen(a[0]) {
		return errBadf
	}
	clear(b)
	b[16], b[24] = typeDevice, 1
	return success
}

// badTimes reports flags that want a time to be set and to be now.
func badTimes(flags uint64) bool {
	const access, accessNow, modified, modifiedNow = 1, 2, 4, 8
	return flags&(access|accessNow) == access|accessNow || flags&(modified|modifiedNow) == modified|modifiedNow
}

func setTimes(p *Process, _ Memory, a []uint64) Errno {
	switch {
	case !p.isOpen(a[0]):
		return errBadf
	case badTimes(a[3]):
		return errInval
	}
	return errNosys
}

func renumber(p *Process, _ Memory, a []uint64) Errno {
	if !p.isOpen(a[0]) || int32(a[1]) < 0 {
		return errBadf
	}
	return errNotsup
}

func readdir(p *Process, _ Memory, a []uint64) Errno {
	const header = 24
	if uint32(a[2]) < header {
		return errInval
	}
	return errBadf
}

// vectors goes over the buffers that a list of them names, up to the first of
// which each says that it is the last.
func (p *Process) vectors(mem Memory, list, count uint64, each func(b []byte) (more bool, err Errno)) Errno {
	n := uint32(count) << 3
	buffers, ok := mem.Read(uint32(list), n)
	if !ok {
		return errFault
	}
	for ; len(buffers) >= 8; buffers = buffers[8:] {
		at, size := binary.LittleEndian.Uint32(buffers), binary.LittleEndian.Uint32(buffers[4:])
		b, ok := mem.Read(at, size)
		if !ok {
			return errFault
		}
		if more, err := each(b); err != success || !more {
			return err
		}
	}
	return success
}

func (p *Process) write(mem Memory, a []uint64, positioned bool) Errno {
	if !p.isOpen(a[0]) {
		return errBadf
	}
	fd, written := int32(a[0]), uint32(0)
	err := p.vectors(mem, a[1], a[2], func(b []byte) (bool, Errno) {
		switch {
		case positioned && len(b) == 0:
			return true, success
		case positioned || fd == stdin:
			return false, errBadf
		case fd == stderr:
			_, _ = p.World.Write(b) // it never fails
		}
		written += uint32(len(b))
		return true, success
	})
	if err != success {
		return err
	}
	return put32(mem, a[len(a)-1], written)
}

func (p *Process) read(mem Memory, a []uint64, positioned bool) Errno {
	if !p.isOpen(a[0]) {
		return errBadf
	}
	err := p.vectors(mem, a[1], a[2], func(b []byte) (bool, Errno) {
		switch {
		case len(b) == 0:
			return true, success
		case positioned || int32(a[0]) != stdin:
			return false, errBadf
		}
		return false, success // its end
	})
	if err != success {
		return err
	}
	return put32(mem, a[len(a)-1], 0)
}

// at is a function of a path below a folder, of which there is none: which
// arguments are the folder and the path.
func at(folder, name int) Function {
	return func(p *Process, mem Memory, a []uint64) Errno { return p.path(mem, a[folder], a[name], a[name+1]) }
}

// maxPath is the longest path that is looked at, in bytes.
const maxPath = 64 << 10

func (p *Process) path(mem Memory, fd, name, n uint64) Errno {
	b, ok := mem.Read(uint32(name), uint32(n))
	switch {
	case !ok:
		return errFault
	case len(b) > maxPath:
		return errLongName
	case !fs.ValidPath(path.Clean(string(b))):
		return errPerm
	case !p.isOpen(fd):
		return errBadf
	}
	return errNotdir
}

func pathSetTimes(p *Process, mem Memory, a []uint64) Errno {
	if badTimes(a[6]) {
		return errInval
	}
	return p.path(mem, a[0], a[2], a[3])
}

func readlink(p *Process, mem Memory, a []uint64) Errno {
	if uint32(a[2]) == 0 || uint32(a[4]) == 0 {
		return errInval
	}
	return p.path(mem, a[0], a[1], a[2])
}

func symlink(p *Process, _ Memory, a []uint64) Errno {
	if !p.isOpen(a[2]) {
		return errBadf
	}
	return errNotdir
}

func send(_ *Process, _ Memory, a []uint64) Errno {
	if uint32(a[3]) != 0 {
		return errNotsup
	}
	return errBadf
}

// What poll_oneoff waits for.
const (
	pollClock = iota
	pollRead
	pollWrite

	subscriptionBytes = 48
	eventBytes        = 32
)

func poll(p *Process, mem Memory, a []uint64) Errno {
	n := uint32(a[2])
	if n == 0 {
		return errInval
	}
	in, ok := mem.Read(uint32(a[0]), n*subscriptionBytes)
	if !ok {
		return errFault
	}
	out, ok := mem.Read(uint32(a[1]), n*eventBytes)
	if !ok {
		return errFault
	}
	clear(out)
	if err := put32(mem, a[3], n); err != success {
		return err
	}
	return p.events(in, out)
}

// events writes an event for each subscription, those of standard input last,
// and sleeps for the shortest time that is asked for if there are no others.
func (p *Process) events(in, out []byte) Errno {
	sleep := int64(1<<63 - 1)
	var last [][]byte
	event := func(s []byte, errno Errno) {
		copy(out, s[:8])
		out[8] = byte(errno)
		binary.LittleEndian.PutUint32(out[10:], uint32(s[8]))
		out = out[eventBytes:]
	}
	for ; len(in) >= subscriptionBytes && len(out) >= eventBytes; in = in[subscriptionBytes:] {
		s := in[:subscriptionBytes]
		fd := uint64(binary.LittleEndian.Uint32(s[16:]))
		switch s[8] {
		case pollClock:
			switch binary.LittleEndian.Uint16(s[40:]) {
			case 0:
			case 1: // a time of the clock's
				return errNotsup
			default:
				return errInval
			}
			sleep = min(sleep, int64(binary.LittleEndian.Uint64(s[24:])))
			event(s, success)
		case pollRead, pollWrite:
			switch {
			case int32(fd) < 0:
				return errBadf
			case !p.isOpen(fd):
				event(s, errBadf)
			case s[8] == pollWrite:
				event(s, errNotsup)
			default:
				last = append(last, s)
			}
		default:
			return errInval
		}
	}
	if len(last) == 0 {
		p.World.Sleep(sleep)
		return success
	}
	if p.closed[stdin] {
		return errBadf
	}
	for _, s := range last {
		event(s, success)
	}
	return success
}

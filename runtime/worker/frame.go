package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
)

// A message is one frame on a pipe: two lengths of 32 bits, little-endian, a
// head of JSON and a body of bytes.
type message struct {
	Kind   kind    `json:"kind"`
	Text   string  `json:"text,omitempty"` // a host function, or why something failed
	Module *module `json:"module,omitempty"`
	Call   *call   `json:"call,omitempty"`
	Result *result `json:"result,omitempty"`

	body []byte // a module, an input, an argument, an answer or an output
}

type kind string

// What is said to a worker: module once and first, then instance, any number of
// calls with the answers that they ask for, and free, again and again.
const (
	kindModule   kind = "module"
	kindInstance kind = "instance"
	kindCall     kind = "call"
	kindAnswer   kind = "answer"
	kindFree     kind = "free"
)

// What a worker says: done or failed to a module, an instance and a free; any
// number of asks and one result to a call.
const (
	kindDone   kind = "done"
	kindFailed kind = "failed"
	kindAsk    kind = "ask"
	kindResult kind = "result"
)

// module is a runtime.Module without its bytes.
type module struct {
	Key         string            `json:"key"`
	Digest      string            `json:"digest"`
	Info        *hostabi.Module   `json:"info"`
	Config      map[string]string `json:"config"`
	MemoryPages uint32            `json:"memoryPages"`
	HostCalls   int               `json:"hostCalls"`
	Compile     uint64            `json:"compileBytes"`
}

// call is a runtime.Call without its input.
type call struct {
	Export string     `json:"export"`
	NowMs  int64      `json:"nowMs"`
	Random [4]float64 `json:"random"`
}

// result is a runtime.Result without its output, or a fault.
type result struct {
	Fault   dsh.FaultKind     `json:"fault,omitempty"` // "": none
	Message string            `json:"message,omitempty"`
	Fuel    uint64            `json:"fuel"`
	Logs    []runtime.LogLine `json:"logs,omitempty"`
	CPUMs   int64             `json:"cpuMs"` // that the worker has used until now
}

// The bounds of a frame, in bytes. A module may have grown by the limits that
// are written into it.
const (
	maxHead = 16 << 20 // to a worker: it has what a module imports and exports
	maxBody = 64 << 20

	maxSaidHead = 256 << 10 // by a worker: 64 lines of logs, with room
	maxSaidBody = 1 << 20
)

func write(w io.Writer, m message) error {
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(head) > maxHead || len(m.body) > maxBody {
		return fmt.Errorf("a message of %d bytes is too long", len(head)+len(m.body))
	}
	frame := make([]byte, 8, 8+len(head)+len(m.body))
	binary.LittleEndian.PutUint32(frame, uint32(len(head)))
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(m.body)))
	_, err = w.Write(append(append(frame, head...), m.body...))
	return err
}

var errFrame = errors.New("a message that breaks the form")

func read(r io.Reader, heads, bodies uint32) (message, error) {
	var m message
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return m, err
	}
	head, body := binary.LittleEndian.Uint32(lengths[:]), binary.LittleEndian.Uint32(lengths[4:])
	if head > heads || body > bodies {
		return m, errFrame
	}
	raw := make([]byte, head)
	if _, err := io.ReadFull(r, raw); err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, errFrame
	}
	m.body = make([]byte, body)
	_, err := io.ReadFull(r, m.body)
	return m, err
}

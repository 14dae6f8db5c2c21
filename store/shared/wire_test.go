//go:build linux || darwin

package shared_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/shared"
)

// fakeKeeper listens where the keeper of a folder does, and does what f says
// with each connection.
func fakeKeeper(t *testing.T, dir string, f func(net.Conn)) {
	t.Helper()
	path, err := shared.SocketPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				f(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
}

func frame(kind byte, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(body)))
	return append(append(b, kind), body...)
}

func TestAKeeperThatIsSilent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fakeKeeper(t, dir, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	o := neverKeeps(options(t, dir))
	o.Open = func() (dsh.Log, error) { return nil, &dsh.LockedError{Dir: dir, PID: 4711} }
	o.Silence = 50 * time.Millisecond
	_, err := shared.Open(t.Context(), o)
	var silent *shared.SilentError
	if !errors.As(err, &silent) || silent.PID != 4711 {
		t.Errorf("Open: %v, want a *SilentError of process 4711", err)
	}
}

func TestAKeeperOfAnotherVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fakeKeeper(t, dir, func(c net.Conn) {
		_, _ = c.Write(frame('w', fmt.Sprintf(`{"protocol":%d,"pid":4711,"more":true}`, shared.Protocol+1)))
		_, _ = io.Copy(io.Discard, c)
	})
	_, err := shared.Open(t.Context(), neverKeeps(options(t, dir)))
	var version *shared.VersionError
	if !errors.As(err, &version) || version.PID != 4711 || version.Have != shared.Protocol+1 {
		t.Errorf("Open: %v, want a *VersionError of process 4711", err)
	}
}

// A client of another version is told the keeper's.
func TestAClientOfAnotherVersion(t *testing.T) {
	t.Parallel()
	o := options(t, t.TempDir())
	defer closed(t, open(t, o))
	path, err := shared.SocketPath(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(frame('h', `{"protocol":99,"op":"what is to come"}`)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	var hi struct{ Protocol, PID int }
	if err != nil || len(answer) < 5 || json.Unmarshal(answer[5:], &hi) != nil || hi.Protocol != shared.Protocol || hi.PID != os.Getpid() {
		t.Errorf("the keeper answers %q, %v", answer, err)
	}
}

// A folder that another program has open, which serves nobody, is waited for
// in vain.
func TestAFolderThatNobodyServes(t *testing.T) {
	t.Parallel()
	o := neverKeeps(options(t, t.TempDir()))
	o.Patience = 20 * time.Millisecond
	_, err := shared.Open(t.Context(), o)
	var locked *dsh.LockedError
	if !errors.As(err, &locked) || !strings.Contains(err.Error(), "does not serve") {
		t.Errorf("Open: %v, want a *dsh.LockedError", err)
	}
}

// A head comes through whole, whatever fields it has.
func TestHeadsOnTheirWay(t *testing.T) {
	var h dsh.Head
	v := reflect.ValueOf(&h).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprint("text ", i, " é"))
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(1000 * (i + 1)))
		case reflect.Uint64:
			f.SetUint(1 << 60)
		default:
			t.Fatalf("a field of kind %v", f.Kind())
		}
	}
	for _, h := range []dsh.Head{h, {}, {StartedAt: -5, UpdatedAt: -1}} {
		b := shared.PackHead(h)
		if got, err := shared.UnpackHead(b); err != nil || got != h {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, h)
		}
		for n := range b {
			if got, err := shared.UnpackHead(b[:n]); err == nil {
				t.Errorf("%d of %d bytes: %+v", n, len(b), got)
			}
		}
	}
}

func TestTheSocketIsPrivate(t *testing.T) {
	t.Parallel()
	o := options(t, t.TempDir())
	log := open(t, o)
	path, err := shared.SocketPath(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700, filepath.Join(o.Dir, "writers"): 0o600, filepath.Join(o.Dir, "socket"): 0o600} {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", p, info.Mode(), err, want)
		}
	}
	closed(t, log)
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket outlives its keeper")
	}
}

// FuzzKeeper sends a keeper what no client says. It goes on.
func FuzzKeeper(f *testing.F) {
	dir := f.TempDir()
	store := memory.New()
	log, err := shared.Open(f.Context(), shared.Options{Dir: dir, Open: func() (dsh.Log, error) { return store, nil }})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { closed(f, log) })
	path, err := shared.SocketPath(dir)
	if err != nil {
		f.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		f.Fatal(err)
	}
	hello := func(op string) []byte {
		return frame('h', fmt.Sprintf(`{"protocol":%d,"dir":%q,"op":%q,"session":"s"}`, shared.Protocol, real, op))
	}
	for _, op := range []string{"acquire", "read", "follow", "head", "heads", "snapshot", "remove", "ping", "x"} {
		f.Add(hello(op))
	}
	for _, tail := range []string{"\x00\x00\x00\x01q", "\x00\x00\x00\x03q\x05{", "\xff\xff\xff\xffa", "\x00\x00\x00\x00", "\x00\x00\x00\x0aa01234567\x7f", "\x00\x00\x00\x0ak01234567\xff", "\x00\x00\x00\x09r01234567"} {
		f.Add(append(hello("acquire"), tail...))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(said)
		_ = conn.(*net.UnixConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the keeper does not end the connection")
		}
		_ = conn.Close()
	})
}

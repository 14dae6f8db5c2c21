//go:build linux || darwin

package shared_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/shared"
	"github.com/dsh-agent/dsh/store/storetest"
)

// options are those of a folder whose warnings fail the test.
func options(t testing.TB, dir string) shared.Options {
	return shared.Options{
		Dir: dir,
		Warn: func(err error) {
			if !strings.Contains(err.Error(), "takes its time") { // so does a machine that tests much
				t.Errorf("warning: %v", err)
			}
		},
		Open:     func() (dsh.Log, error) { return openBadger(t, dir) },
		Patience: time.Minute, // on a machine that does much else
		Silence:  time.Minute,
	}
}

func openBadger(t testing.TB, dir string) (dsh.Log, error) {
	log, err := badger.Open(dir, badger.Options{Warn: func(err error) { t.Errorf("warning: %v", err) }})
	if err != nil {
		return nil, err
	}
	return log, nil
}

func open(t testing.TB, o shared.Options) *shared.Log {
	t.Helper()
	log, err := shared.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return log
}

func closed(t testing.TB, log dsh.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// neverKeeps is for a log that goes to another for everything.
func neverKeeps(o shared.Options) shared.Options {
	o.Open = func() (dsh.Log, error) { return nil, &dsh.LockedError{Dir: o.Dir} }
	return o
}

func TestKeeper(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store {
		o := options(t, t.TempDir())
		o.Open = func() (dsh.Log, error) { return memory.New(), nil }
		return storetest.Store{Open: func(t testing.TB) dsh.Log { return open(t, o) }}
	})
}

func TestThroughTheSocket(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store {
		o := options(t, t.TempDir())
		keeper := open(t, o)
		t.Cleanup(func() { closed(t, keeper) })
		return storetest.Store{Persists: true, Open: func(t testing.TB) dsh.Log { return open(t, neverKeeps(o)) }}
	})
}

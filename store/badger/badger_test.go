package badger_test

import (
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
	"github.com/dsh-agent/dsh/store/storetest"
)

// open opens a log whose warnings fail the test.
func open(t testing.TB, dir string) *badger.Log {
	t.Helper()
	log, err := badger.Open(dir, badger.Options{Warn: func(err error) { t.Errorf("warning: %v", err) }})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return log
}

func TestLog(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		dir := t.TempDir()
		return storetest.Store{Persists: true, Open: func(t testing.TB) dsh.Log { return open(t, dir) }}
	})
}

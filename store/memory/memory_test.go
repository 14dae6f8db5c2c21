package memory_test

import (
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/storetest"
)

func TestLog(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store {
		return storetest.Store{Open: func(testing.TB) dsh.Log { return memory.New() }}
	})
}

// A wrapper passes the suite too.
func TestFaulty(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store {
		return storetest.Store{Open: func(testing.TB) dsh.Log { return storetest.Faulty(memory.New(), storetest.Fault{}) }}
	})
}

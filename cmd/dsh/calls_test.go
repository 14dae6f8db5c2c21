package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
)

// An answer with ten thousand calls is answered call by call, and the turn goes
// on: what is over the number that is made is said not to have been.
func TestTenThousandCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("it stores tens of thousands of events")
	}
	t.Parallel()
	const calls = 10_000
	all := scripted.Step{Do: scripted.Tool}
	for i := range calls {
		all.Tools = append(all.Tools, scripted.Call{Name: "read", Arguments: fmt.Sprintf(`{"path":"%d.txt"}`, i)})
	}
	w := prepare(t, all, answer("done"))
	if r := w.run(t, "run", "--quiet", "read them all"); r.code != 0 || r.out != "done\n" {
		t.Fatalf("exit %d, stdout %q, %.300s", r.code, r.out, r.err)
	}
	results, refused := 0, 0
	for _, e := range ofType(w.events(t), dsh.TypeToolResult) {
		results++
		if strings.Contains(string(e.Data), "The call was not made") {
			refused++
		}
	}
	if results != calls || refused != calls-128 {
		t.Errorf("%d results, %d of them of calls that were not made", results, refused)
	}
}

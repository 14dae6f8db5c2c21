package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"

	"github.com/dsh-agent/dsh"
)

// Transport makes a failure of an error of the connection, of which the
// watchdogs and the caller are not the cause. doing says what was under way:
// "the connection to host", "the stream".
func Transport(err error, doing string) Verdict {
	var u *url.Error
	if errors.As(err, &u) { // its text holds the address, and that may hold a secret
		err = u.Err
	}
	code, rule := dsh.CodeTransport, "the connection failed"
	var n net.Error
	switch {
	case errors.Is(err, context.Canceled):
		code, rule = dsh.CodeAborted, "the request was cancelled"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT),
		errors.As(err, &n) && n.Timeout():
		code, rule = dsh.CodeTimeout, "the connection timed out"
	}
	return Verdict{
		Failure: &dsh.Failure{Code: code, Message: Clean(fmt.Sprintf("%s failed: %v", doing, err)), Cause: err},
		Rule:    rule,
	}
}

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
)

// reloads loads the policies anew whenever that is wished for, until stop is
// closed. What does not hold is said, and all goes on as it was.
func (r *rooms) reloads(ctx context.Context, c cli.Common, load func() (*config.Config, error)) {
	for {
		select {
		case <-r.stop:
			return
		case <-r.program.reload:
		}
		err := r.reloadOnce(ctx, load)
		if err != nil {
			c.Warn("SIGHUP: the policies are not loaded anew, and go on as they were: " + problemsOf(err))
		} else if !c.Quiet {
			c.Warn("SIGHUP: the policies were loaded anew")
		}
	}
}

func (r *rooms) reloadOnce(ctx context.Context, load func() (*config.Config, error)) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	v, err := verifier(cfg)
	if err != nil {
		return err
	}
	if err := r.policies.Reload(ctx, specs(cfg), v.Verify); err != nil {
		return loadProblems(cfg, err)
	}
	return nil
}

// problemsOf is an error in one line.
func problemsOf(err error) string {
	var u *cli.UsageError
	if errors.As(err, &u) {
		return strings.Join(u.Problems, "; ")
	}
	return err.Error()
}

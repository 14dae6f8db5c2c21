package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// maxResponse is the longest recorded body that is read, in bytes.
const maxResponse = 64 << 20

func (a *app) classifyCommand() *cobra.Command {
	var (
		adapter string
		status  int
		headers []string
		explain bool
	)
	c := &cobra.Command{
		Use:   "classify --adapter NAME [FILE]",
		Short: "Say which failure an adapter makes of a recorded response",
		Long: `Prints the failure that an adapter makes of a recorded response, as JSON, or {}
where the response is a good one. No request is sent. The body is FILE; for
"-", or with none, it is read from stdin.`,
		Example: `  dsh classify --adapter openai-chat --status 429 --header "Retry-After: 20" body.json`,
		Args:    between(0, 1, "one file, or - for stdin"),
		RunE: func(c *cobra.Command, args []string) error {
			r := Response{Status: status}
			var err error
			if r.Header, err = headerLines(headers); err != nil {
				return err
			}
			if err := a.checkClassify(c, adapter, status); err != nil {
				return err
			}
			if r.Body, err = a.body(c.Context(), args); err != nil {
				return err
			}
			return a.classify(c.Context(), adapter, r, explain)
		},
	}
	f := c.Flags()
	f.StringVar(&adapter, "adapter", "", "the adapter's `name`: "+strings.Join(a.program.Adapters, ", "))
	f.IntVar(&status, "status", http.StatusOK, "the HTTP `status`, 100 to 599")
	f.StringArrayVar(&headers, "header", nil, "a header of the response: `K:V`, repeatable")
	f.BoolVar(&explain, "explain", false, "says on stderr how it came to it")
	return c
}

func (a *app) checkClassify(c *cobra.Command, adapter string, status int) error {
	switch {
	case adapter == "":
		return Usagef("dsh classify needs --adapter: %s", strings.Join(a.program.Adapters, ", "))
	case !slices.Contains(a.program.Adapters, adapter):
		return Usagef("--adapter %q is not known: %s", oneLine(adapter, 40), strings.Join(a.program.Adapters, ", "))
	case status < 100 || status > 599:
		return Usagef("--status %d is not from 100 to 599", status)
	}
	return nil
}

// headerLines reads --header: K:V each.
func headerLines(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, l := range lines {
		k, v, ok := strings.Cut(l, ":")
		if k = strings.TrimSpace(k); !ok || k == "" {
			return nil, Usagef("--header %q is not of the form K:V", oneLine(l, 60))
		}
		h.Add(k, strings.TrimSpace(v))
	}
	return h, nil
}

// body reads the recorded body.
func (a *app) body(ctx context.Context, args []string) ([]byte, error) {
	in, name := a.in, "stdin"
	if len(args) == 1 && args[0] != "-" {
		name = args[0]
		f, err := os.Open(name)
		if err != nil {
			return nil, Usagef("%v", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	} else if a.inTerminal && len(args) == 0 {
		return nil, Usagef("dsh classify needs a body: a file, or - for stdin")
	}
	b, err := io.ReadAll(io.LimitReader(in, maxResponse+1))
	switch {
	case err != nil:
		return nil, Usagef("%s could not be read: %v", name, err)
	case len(b) > maxResponse:
		return nil, Usagef("%s is longer than %d MiB", name, maxResponse>>20)
	}
	return b, nil
}

func (a *app) classify(ctx context.Context, adapter string, r Response, explain bool) error {
	f, why, err := a.program.Classify(ctx, adapter, r)
	if err != nil {
		return err
	}
	if explain {
		a.say.line(plain, fmt.Sprintf("%s: %s", adapter, why))
	}
	if f == nil {
		_, err := io.WriteString(a.out, "{}\n")
		return err
	}
	return writeJSON(a.out, f)
}

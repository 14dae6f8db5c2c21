package extism

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	sdk "github.com/extism/go-sdk"

	"github.com/dsh-agent/dsh/hostabi"
)

// httpNamespace is where a plugin finds HTTP. It is as long as the SDK's own,
// so that it can be written over that.
const httpNamespace = "dsh:tool:http/1"

// The kernel's namespace and ours are of one length, or this does not compile.
const _ = uint(len(httpNamespace)-len(hostabi.NamespaceKernel)) + uint(len(hostabi.NamespaceKernel)-len(httpNamespace))

type webKey struct{}

// A web is what one call of a plugin has of the network.
type web struct {
	hosts   []string
	status  int
	headers map[string]string
}

// httpFunctions are Extism's functions for HTTP, whose contract is that of its
// documentation (extism.org/docs/concepts): a request that is refused or fails
// traps.
func httpFunctions() []sdk.HostFunction {
	of := func(ctx context.Context) *web {
		w, ok := ctx.Value(webKey{}).(*web)
		if !ok {
			panic(errors.New("there is no HTTP here"))
		}
		return w
	}
	wide, narrow := []sdk.ValueType{sdk.ValueTypeI64}, []sdk.ValueType{sdk.ValueTypeI32}
	functions := []sdk.HostFunction{
		sdk.NewHostFunctionWithStack("http_request", func(ctx context.Context, p *sdk.CurrentPlugin, stack []uint64) {
			stack[0] = of(ctx).request(ctx, p, stack[0], stack[1])
		}, append(wide, wide...), wide),
		sdk.NewHostFunctionWithStack("http_status_code", func(ctx context.Context, _ *sdk.CurrentPlugin, stack []uint64) {
			stack[0] = uint64(of(ctx).status)
		}, nil, narrow),
		sdk.NewHostFunctionWithStack("http_headers", func(ctx context.Context, p *sdk.CurrentPlugin, stack []uint64) {
			raw, err := json.Marshal(of(ctx).headers)
			if err == nil {
				stack[0], err = p.WriteBytes(raw)
			}
			must(err)
		}, nil, wide),
	}
	for i := range functions {
		functions[i].SetNamespace(httpNamespace)
	}
	return functions
}

// must ends a call of a guest. The engine takes the panic.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// request makes one request of a plugin's.
func (w *web) request(ctx context.Context, p *sdk.CurrentPlugin, meta, body uint64) uint64 {
	w.status, w.headers = 0, nil
	raw, err := p.ReadBytes(meta)
	must(err)
	must(p.Free(meta))
	var want sdk.HttpRequest
	must(json.Unmarshal(raw, &want))
	var content []byte
	if body != 0 {
		content, err = p.ReadBytes(body)
		must(err)
		must(p.Free(body))
	}
	answer, err := w.fetch(ctx, want, content)
	must(err)
	if len(answer) == 0 {
		return 0
	}
	offset, err := p.WriteBytes(answer)
	must(err)
	return offset
}

// maxRedirects is how many redirects of one request are followed.
const maxRedirects = 5

// fetch sends a request to a host that is allowed, and follows redirects to
// such hosts only.
func (w *web) fetch(ctx context.Context, want sdk.HttpRequest, content []byte) ([]byte, error) {
	method := strings.ToUpper(want.Method)
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if content != nil {
		body = strings.NewReader(string(content))
	}
	req, err := http.NewRequestWithContext(ctx, method, want.Url, body)
	if err != nil {
		return nil, fmt.Errorf("a bad HTTP request: %w", err)
	}
	if err := w.allowed(req.URL); err != nil {
		return nil, err
	}
	for name, value := range want.Headers {
		req.Header.Set(name, value)
	}
	client := &http.Client{CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return w.allowed(next.URL)
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, toolHTTP+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > toolHTTP:
		return nil, fmt.Errorf("the HTTP answer of %s is larger than %d bytes", req.URL.Host, toolHTTP)
	}
	w.status, w.headers = resp.StatusCode, map[string]string{}
	for name, values := range resp.Header {
		w.headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return answer, nil
}

// allowed holds a URL to the hosts.
func (w *web) allowed(u *url.URL) error {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if u.Scheme == "http" || u.Scheme == "https" {
		for _, pattern := range w.hosts {
			if ok, err := path.Match(strings.ToLower(pattern), host); err == nil && ok && host != "" {
				return nil
			}
		}
	}
	return fmt.Errorf("HTTP to %s://%s is not allowed", u.Scheme, u.Host)
}

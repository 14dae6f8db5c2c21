// Package registry keeps modules in OCI registries, and gets them from there by
// digest. An artifact has the layout of the CNCF's Wasm working group: a config
// of type application/vnd.wasm.config.v0+json and one layer of type
// application/wasm, which is the module as it is. It is the only room that
// knows the library.
package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/dsh-agent/dsh/hostabi"
)

// Prefix begins a reference.
const Prefix = "oci://"

// The media types of an artifact, and of a signature beside it. Source of the
// first two: "Wasm OCI Artifact layout" of the CNCF's TAG Runtime (2024).
const (
	layerType     = "application/wasm"
	configType    = "application/vnd.wasm.config.v0+json"
	signatureType = "application/vnd.dsh.policy.signature.v1+minisign"
)

// The most that is read of a manifest, and how long a registry has for its
// answer and for all of them.
const (
	maxManifest   = 1 << 20
	answerTimeout = 15 * time.Second
	totalTimeout  = 2 * time.Minute
)

// A Reference names an artifact: oci://HOST/NAME@sha256:DIGEST, or with a tag.
type Reference struct {
	Host, Name string
	Tag        string // "": none
	Digest     string // SHA-256 of the manifest, hex; "": none
}

// What a reference is made of: they are compiled where one is read, which most
// runs of dsh never do.
const (
	hostForm = `^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$|^\[[0-9a-fA-F:]+\](:[0-9]{1,5})?$`
	nameForm = `^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`
	tagForm  = `^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`
)

func matches(form, text string) bool { return regexp.MustCompile(form).MatchString(text) }

// Parse reads a reference.
func Parse(text string) (Reference, error) {
	bad := fmt.Errorf("%q is no reference: oci://HOST/NAME@sha256:DIGEST, and oci://HOST/NAME or oci://HOST/NAME:TAG to push to", text)
	rest, ok := strings.CutPrefix(text, Prefix)
	if !ok || len(text) > 1024 {
		return Reference{}, bad
	}
	var r Reference
	rest, digest, hasDigest := strings.Cut(rest, "@")
	if hasDigest {
		if r.Digest, ok = strings.CutPrefix(digest, "sha256:"); !ok || !hostabi.IsDigest(r.Digest) {
			return Reference{}, bad
		}
	}
	r.Host, r.Name, _ = strings.Cut(rest, "/")
	if name, tag, hasTag := strings.Cut(r.Name, ":"); hasTag {
		if !matches(tagForm, tag) {
			return Reference{}, bad
		}
		r.Name, r.Tag = name, tag
	}
	if !matches(hostForm, r.Host) || !matches(nameForm, r.Name) {
		return Reference{}, bad
	}
	return r, nil
}

// String is the reference as Parse reads it.
func (r Reference) String() string {
	s := Prefix + r.Host + "/" + r.Name
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@sha256:" + r.Digest
	}
	return s
}

// A Client speaks to registries. Its zero value keeps nothing, and is nobody.
type Client struct {
	Cache      Cache
	DockerAuth bool          // the credentials of Docker's files and helpers are used
	Timeout    time.Duration // for each answer; 0: 15 s
	Warn       func(string)  // is told what goes on without something; nil: nobody
}

// repository is where a reference leads. On this machine a registry needs no
// TLS, as for Docker.
func (c Client) repository(r Reference) (*remote.Repository, error) {
	repo, err := remote.NewRepository(r.Host + "/" + r.Name)
	if err != nil {
		return nil, err
	}
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = answerTimeout
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = timeout
	transport.TLSHandshakeTimeout = timeout
	transport.DisableKeepAlives = true // nothing is left behind
	client := &auth.Client{Client: &http.Client{Transport: transport}, Cache: auth.NewCache()}
	client.SetUserAgent("dsh")
	if c.DockerAuth {
		store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
		if err != nil {
			return nil, fmt.Errorf("the configuration of Docker cannot be read: %w", err)
		}
		client.Credential = credentials.Credential(store)
	}
	repo.Client, repo.PlainHTTP = client, loopback(r.Host)
	return repo, nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Pull gets the module that a reference with a digest names, from the cache or
// from its registry. What it returns has been held to the digest.
func (c Client) Pull(ctx context.Context, text string) ([]byte, error) {
	r, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if r.Digest == "" {
		return nil, fmt.Errorf("%s names no digest, and a module is got by its digest alone: add @sha256:…", text)
	}
	if wasm := c.Cache.load(r.Digest); wasm != nil {
		return wasm, nil
	}
	ctx, cancel := context.WithTimeout(ctx, totalTimeout)
	defer cancel()
	repo, err := c.repository(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	manifest, err := fetch(ctx, repo.Manifests(), "sha256:"+r.Digest, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, words(err))
	}
	layer, err := layerOf(manifest, r.Digest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	wasm, err := fetch(ctx, repo.Blobs(), layer.Digest.String(), hostabi.MaxModuleBytes)
	if err == nil {
		err = holds(wasm, strings.TrimPrefix(layer.Digest.String(), "sha256:"), "the module")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, words(err))
	}
	if err := c.Cache.keep(r.Digest, manifest, wasm); err != nil && c.Warn != nil {
		c.Warn(fmt.Sprintf("%s is got again each time: it cannot be kept: %v", text, err))
	}
	return wasm, nil
}

// fetcher is what has manifests, or blobs.
type fetcher interface {
	FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error)
}

// fetch reads something of a limited size. Its digest is for the caller to
// check.
func fetch(ctx context.Context, from fetcher, reference string, limit int64) ([]byte, error) {
	desc, body, err := from.FetchReference(ctx, reference)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if desc.Size > limit {
		return nil, fmt.Errorf("it has %d bytes, and at most %d are read", desc.Size, limit)
	}
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it has over %d bytes, and no more are read", limit)
	}
	return data, nil
}

// layerOf finds the module in a manifest with the right digest.
func layerOf(manifest []byte, digest string) (ocispec.Descriptor, error) {
	var none ocispec.Descriptor
	if err := holds(manifest, digest, "the manifest"); err != nil {
		return none, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return none, errors.New("its manifest is not one of an artifact")
	}
	for _, l := range m.Layers {
		if l.MediaType != layerType {
			continue
		}
		sum, ok := strings.CutPrefix(l.Digest.String(), "sha256:")
		switch {
		case !ok || !hostabi.IsDigest(sum):
			return none, errors.New("its manifest names the module by another digest than a SHA-256")
		case l.Size < 0 || l.Size > hostabi.MaxModuleBytes:
			return none, fmt.Errorf("its module has %d bytes, and at most %d are allowed", l.Size, hostabi.MaxModuleBytes)
		}
		return l, nil
	}
	return none, fmt.Errorf("it is no module: its manifest has no layer of type %s", layerType)
}

func holds(data []byte, digest, what string) error {
	if got := sum(data); got != digest {
		return fmt.Errorf("%s that came has the digest %s, and not %s: it is not used", what, got, digest)
	}
	return nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// Push puts a module into a registry, and its signature, if it has one, beside
// it: an artifact of its own that refers to the module's. The same module gives
// the same digest. What it returns has that digest.
func (c Client) Push(ctx context.Context, text string, wasm []byte) (Reference, error) {
	r, err := Parse(text)
	if err != nil {
		return r, err
	}
	if r.Digest != "" {
		return r, fmt.Errorf("%s names a digest, which comes of the module: leave it out", text)
	}
	_, signature, err := hostabi.SplitSignature(wasm)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, totalTimeout)
	defer cancel()
	repo, err := c.repository(r)
	if err != nil {
		return r, fmt.Errorf("%s: %w", text, err)
	}
	desc, err := pack(ctx, repo, wasm)
	if err == nil && signature != nil {
		err = packSignature(ctx, repo, desc, signature)
	}
	if err == nil && r.Tag != "" {
		err = repo.Tag(ctx, desc, r.Tag)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", text, words(err))
	}
	r.Digest = desc.Digest.Encoded()
	return r, nil
}

// pack pushes the module's artifact.
func pack(ctx context.Context, repo *remote.Repository, wasm []byte) (ocispec.Descriptor, error) {
	const epoch = "1970-01-01T00:00:00Z" // the same module, the same digest
	layer, err := push(ctx, repo, layerType, wasm)
	if err != nil {
		return layer, err
	}
	config, err := json.Marshal(map[string]any{
		"created": epoch, "architecture": "wasm", "os": "wasip1", "layerDigests": []string{layer.Digest.String()},
	})
	if err != nil {
		return layer, err
	}
	configured, err := push(ctx, repo, configType, config)
	if err != nil {
		return layer, err
	}
	return pushManifest(ctx, repo, ocispec.Manifest{
		Config: configured, Layers: []ocispec.Descriptor{layer}, Annotations: annotations(wasm, epoch),
	})
}

// push pushes a blob.
func push(ctx context.Context, repo *remote.Repository, mediaType string, data []byte) (ocispec.Descriptor, error) {
	desc := content.NewDescriptorFromBytes(mediaType, data)
	return desc, repo.Push(ctx, desc, bytes.NewReader(data))
}

// pushManifest pushes what names the blobs of an artifact, which are there.
func pushManifest(ctx context.Context, repo *remote.Repository, m ocispec.Manifest) (ocispec.Descriptor, error) {
	m.SchemaVersion, m.MediaType = 2, ocispec.MediaTypeImageManifest
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	desc := content.NewDescriptorFromBytes(m.MediaType, data)
	desc.ArtifactType, desc.Annotations = m.ArtifactType, m.Annotations // what a list of referrers shows
	return desc, repo.Push(ctx, desc, bytes.NewReader(data))
}

// annotations are what a registry shows of a module.
func annotations(wasm []byte, created string) map[string]string {
	a := map[string]string{ocispec.AnnotationCreated: created}
	m, err := hostabi.ParseModule(wasm)
	if err != nil || m.Manifest == nil {
		return a
	}
	for key, value := range map[string]string{
		ocispec.AnnotationTitle: m.Manifest.Name, ocispec.AnnotationVersion: m.Manifest.Version, ocispec.AnnotationDescription: m.Manifest.Description,
	} {
		if value != "" {
			a[key] = value
		}
	}
	return a
}

// packSignature pushes a signature's artifact, which refers to the module's.
func packSignature(ctx context.Context, repo *remote.Repository, subject ocispec.Descriptor, signature []byte) error {
	blob, err := push(ctx, repo, signatureType, signature)
	if err != nil {
		return err
	}
	empty := ocispec.DescriptorEmptyJSON
	config, err := push(ctx, repo, empty.MediaType, empty.Data)
	if err != nil {
		return err
	}
	config.Data = empty.Data
	_, err = pushManifest(ctx, repo, ocispec.Manifest{
		ArtifactType: signatureType, Config: config, Subject: &subject, Layers: []ocispec.Descriptor{blob},
		Annotations: map[string]string{ocispec.AnnotationCreated: "1970-01-01T00:00:00Z"},
	})
	return err
}

// words is an error with what it means, where that is known.
func words(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return fmt.Errorf("the registry does not have it: %w", err)
	case errors.Is(err, content.ErrMismatchedDigest):
		return fmt.Errorf("what came is not what the digest says, and is not used: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the registry does not answer: %w", err)
	}
	return err
}

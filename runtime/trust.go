package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Standing is what is known of who vouches for a module.
type Standing struct {
	Signer   string // the key that has signed it for this name; "": none
	Version  string // that the signature names; ""
	Pinned   bool   // its digest stands in the configuration
	Accepted bool   // the user has accepted its digest for this name
}

// Trusted reports whether a module may have what its name is granted.
func (s Standing) Trusted() bool { return s.Signer != "" || s.Pinned || s.Accepted }

// A Record remembers which modules a user has let in, a file a name:
// NAME.json. It is a folder outside of the one with the modules. "" remembers
// nothing.
type Record string

// An Acceptance is what a user has let in under a name.
type Acceptance struct {
	Version string   `json:"version"` // the last one; "": it had none
	Digests []string `json:"digests"` // of modules that may have what the name is granted, hex
}

// maxAccepted is how many digests are remembered of a name, the last ones: what
// was accepted before is accepted anew where it is wanted.
const maxAccepted = 1000

// maxAcceptance is the size over which a record's file is not read.
const maxAcceptance = 1 << 20

// Of returns what is remembered of a name; of one that is not known, nothing.
func (r Record) Of(name string) (Acceptance, error) {
	var a Acceptance
	if r == "" {
		return a, nil
	}
	path := filepath.Join(string(r), name+".json")
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a, nil
	case err != nil:
		return a, fmt.Errorf("%s: it cannot be read: %w", path, bare(err))
	case !info.Mode().IsRegular() || info.Size() > maxAcceptance:
		return a, fmt.Errorf("%s: it is not a record of what was accepted", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return a, fmt.Errorf("%s: it cannot be read: %w", path, bare(err))
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, fmt.Errorf("%s: it is not a record of what was accepted: %w", path, err)
	}
	return a, nil
}

// Put remembers what was let in under a name. It is on disk when Put returns.
func (r Record) Put(name string, a Acceptance) error {
	if r == "" {
		return errors.New("there is no place to remember what was accepted")
	}
	if a.Digests == nil {
		a.Digests = []string{}
	}
	a.Digests = a.Digests[max(0, len(a.Digests)-maxAccepted):]
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := makeFolder(string(r)); err != nil {
		return err
	}
	return writeFile(filepath.Join(string(r), name+".json"), append(raw, '\n'))
}

// downgrade says why a version may not follow the one that was let in last, or
// "". A version that cannot be compared is lower than one that can.
func (a Acceptance) downgrade(version, digest string) string {
	if a.Version == "" || slices.Contains(a.Digests, digest) || compareVersions(version, a.Version) >= 0 {
		return ""
	}
	shown := "no version"
	if version != "" {
		shown = "version " + version
	}
	return fmt.Sprintf("it has %s, and %s was let in before: an older one needs dsh policy install --accept", shown, a.Version)
}

// compareVersions orders versions by the precedence of semver.org, 2.0.0. Parts
// that are missing are 0; what is no version at all is lower than any.
func compareVersions(a, b string) int {
	na, pa, oka := splitVersion(a)
	nb, pb, okb := splitVersion(b)
	if !oka || !okb {
		return boolInt(oka) - boolInt(okb)
	}
	for i := range max(len(na), len(nb)) {
		if c := at(na, i) - at(nb, i); c != 0 {
			return c
		}
	}
	switch {
	case pa == pb:
		return 0
	case pa == "":
		return 1 // a release is above its pre-releases
	case pb == "":
		return -1
	}
	return slices.CompareFunc(strings.Split(pa, "."), strings.Split(pb, "."), comparePart)
}

// comparePart compares parts of a pre-release: numbers by value, below words.
func comparePart(a, b string) int {
	na, erra := strconv.ParseUint(a, 10, 63)
	nb, errb := strconv.ParseUint(b, 10, 63)
	switch {
	case erra == nil && errb == nil && na != nb:
		return 2*boolInt(na > nb) - 1
	case erra == nil && errb == nil:
		return 0
	case erra == nil || errb == nil:
		return boolInt(errb == nil) - boolInt(erra == nil)
	}
	return strings.Compare(a, b)
}

// splitVersion reads numbers with dots and what follows a dash; a leading v and
// what follows a plus do not count.
func splitVersion(v string) (numbers []int, pre string, ok bool) {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "+")
	v, pre, _ = strings.Cut(v, "-")
	for part := range strings.SplitSeq(v, ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil, "", false
		}
		numbers = append(numbers, int(n))
	}
	return numbers, pre, true
}

func at(numbers []int, i int) int {
	if i < len(numbers) {
		return numbers[i]
	}
	return 0
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

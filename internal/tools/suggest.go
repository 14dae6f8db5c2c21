package tools

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// maxSuggest is how many names of a folder are looked at for a suggestion.
const maxSuggest = 10000

// suggest is a sentence on what may have been meant by a path that does not
// exist, or "".
func (f *Folder) suggest(name string) string {
	dir, base := filepath.Split(name)
	if dir == "" {
		dir = "."
	}
	file, _, err := f.openKind(filepath.Clean(dir), true)
	if err != nil {
		return " Its folder does not exist either: use list to see what there is."
	}
	defer file.Close()
	names, err := file.Readdirnames(maxSuggest)
	if err != nil && len(names) == 0 {
		return ""
	}
	type candidate struct {
		name string
		far  int
	}
	var near []candidate
	for _, n := range names {
		if far := distance(strings.ToLower(n), strings.ToLower(base)); far <= 1+len(base)/4 {
			near = append(near, candidate{n, far})
		}
	}
	if len(near) == 0 {
		return ""
	}
	slices.SortFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.far, b.far), strings.Compare(a.name, b.name))
	})
	var shown []string
	for _, c := range near[:min(3, len(near))] {
		shown = append(shown, show(filepath.Join(dir, c.name)))
	}
	return " There is " + strings.Join(shown, ", ") + "."
}

// distance is the number of bytes to insert, delete or change between two
// names; of long ones, just a large number.
func distance(a, b string) int {
	if max(len(a), len(b)) > 255 {
		return 255
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

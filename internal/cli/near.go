package cli

import (
	"slices"
	"strings"
)

// near returns the candidates that a misspelt word is nearest to, three at
// most.
func near(word string, candidates []string) []string {
	const most = 3
	type match struct {
		name     string
		distance int
	}
	var found []match
	for _, c := range candidates {
		d := distance(strings.ToLower(word), c)
		if len(word) > 1 && strings.HasPrefix(c, strings.ToLower(word)) {
			d = 1
		}
		if d <= max(1, min(len(word), len(c))/3) {
			found = append(found, match{c, d})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int { return a.distance - b.distance })
	var names []string
	for _, m := range found[:min(most, len(found))] {
		if m.distance > found[0].distance {
			break
		}
		names = append(names, m.name)
	}
	return names
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour to make one word the other (optimal string alignment). Long words
// are cut.
func distance(a, b string) int {
	const longest = 64
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

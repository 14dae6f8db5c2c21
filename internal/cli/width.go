package cli

import "unicode"

// wideRanges are the first and last characters, in turn and ascending, of the
// ranges that a terminal shows in two columns: East Asian Wide and Fullwidth of
// Unicode's EastAsianWidth.txt, and the emoji blocks, neighbouring ranges joined.
const wideRanges = "" +
	"\u1100\u115f\u231a\u231b\u2329\u232a\u23e9\u23ec\u23f0\u23f0\u23f3\u23f3\u25fd\u25fe\u2614\u2615" +
	"\u2648\u2653\u267f\u267f\u2693\u2693\u26a1\u26a1\u26aa\u26ab\u26bd\u26be\u26c4\u26c5\u26ce\u26ce" +
	"\u26d4\u26d4\u26ea\u26ea\u26f2\u26f3\u26f5\u26f5\u26fa\u26fa\u26fd\u26fd\u2705\u2705\u270a\u270b" +
	"\u2728\u2728\u274c\u274c\u274e\u274e\u2753\u2755\u2757\u2757\u2795\u2797\u27b0\u27b0\u27bf\u27bf" +
	"\u2b1b\u2b1c\u2b50\u2b50\u2b55\u2b55\u2e80\u303e\u3041\ua4cf\ua960\ua97c\uac00\ud7a3\uf900\ufaff" +
	"\ufe10\ufe19\ufe30\ufe6b\uff01\uff60\uffe0\uffe6\U00016fe0\U00018cff\U0001aff0\U0001b2fb" +
	"\U0001f004\U0001f004\U0001f0cf\U0001f0cf\U0001f18e\U0001f18e\U0001f191\U0001f19a\U0001f200\U0001f320" +
	"\U0001f32d\U0001f335\U0001f337\U0001f37c\U0001f37e\U0001f393\U0001f3a0\U0001f3ca\U0001f3cf\U0001f3d3" +
	"\U0001f3e0\U0001f3f0\U0001f3f4\U0001f3f4\U0001f3f8\U0001f43e\U0001f440\U0001f440\U0001f442\U0001f4fc" +
	"\U0001f4ff\U0001f53d\U0001f54b\U0001f567\U0001f57a\U0001f57a\U0001f595\U0001f596\U0001f5a4\U0001f5a4" +
	"\U0001f5fb\U0001f64f\U0001f680\U0001f6c5\U0001f6cc\U0001f6cc\U0001f6d0\U0001f6d2\U0001f6d5\U0001f6df" +
	"\U0001f6eb\U0001f6ec\U0001f6f4\U0001f6fc\U0001f7e0\U0001f7f0\U0001f90c\U0001f93a\U0001f93c\U0001f945" +
	"\U0001f947\U0001f9ff\U0001fa70\U0001faff\U00020000\U0003fffd"

// cells is the number of columns that a clean character takes on a terminal.
func cells(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	before := 0 // ends of ranges that r is past
	for _, end := range wideRanges {
		if r < end || before%2 == 1 && r == end {
			break
		}
		before++
	}
	return 1 + before%2
}

// rowsOf is the number of rows that a clean text takes on a terminal of a
// width, written from the first column on: at least 1, and the cursor is in
// the last one. A character in the last column leaves the cursor there.
func rowsOf(text string, columns int) int {
	const tab = 8
	rows, column := 1, 0
	for _, r := range text {
		switch r {
		case '\n':
			rows, column = rows+1, 0
			continue
		case '\t': // stops at the last column, and never wraps
			column = min((column/tab+1)*tab, max(column, columns-1))
			continue
		}
		n := cells(r)
		if n > 0 && column+n > columns {
			rows, column = rows+1, 0
		}
		column += n
	}
	return rows
}

// fit cuts a clean line to a number of columns.
func fit(line string, columns int) string {
	n := 0
	for i, r := range line {
		n += cells(r)
		if n > columns {
			return line[:i]
		}
	}
	return line
}

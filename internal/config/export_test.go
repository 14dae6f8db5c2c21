package config

import "github.com/BurntSushi/toml"

// Unplaced lists the keys of a document that have no place, or says why the
// scan failed where the library reads on.
func Unplaced(src string) (keys []string, err error) {
	var doc map[string]any
	if _, err := toml.Decode(src, &doc); err != nil {
		return nil, nil
	}
	marks, err := scan(src)
	if err != nil {
		return nil, err
	}
	var walk func(path string, v any, m *mark)
	walk = func(path string, v any, m *mark) {
		if m == nil || m.line == 0 {
			keys = append(keys, path)
			return
		}
		switch v := v.(type) {
		case map[string]any:
			for k, c := range v {
				walk(joinKey(path, k), c, m.keys[k])
			}
		case []map[string]any:
			for i, c := range v {
				walk(path+"[]", c, m.item(i))
			}
		case []any:
			for i, c := range v {
				walk(path+"[]", c, m.item(i))
			}
		}
	}
	walk("", doc, marks)
	return keys, nil
}

package openaichat

import (
	"encoding/json"
	"fmt"

	"github.com/dsh-agent/dsh"
)

// details gathers OpenRouter's reasoning_details, which come in pieces and go
// back whole: https://openrouter.ai/docs/use-cases/reasoning-tokens
type details struct {
	items []map[string]any
	last  string // the text of the last pieces
	told  bool
}

// maxDetails bounds what is gathered, in items.
const maxDetails = 4096

// add takes the pieces of one delta.
func (d *details) add(raw json.RawMessage) {
	d.last = ""
	if !present(raw) {
		return
	}
	var pieces []map[string]any
	if json.Unmarshal(raw, &pieces) != nil {
		return
	}
	for _, p := range pieces {
		for _, field := range []string{"text", "summary"} {
			if s, ok := p[field].(string); ok {
				d.last += s
			}
		}
		d.join(p)
	}
}

// join adds a piece to the item that it continues: the last one, if the type
// and the index are the same.
func (d *details) join(p map[string]any) {
	if n := len(d.items); n > 0 {
		item := d.items[n-1]
		if fmt.Sprint(item["type"], item["index"]) == fmt.Sprint(p["type"], p["index"]) {
			for k, v := range p {
				s, isText := v.(string)
				old, wasText := item[k].(string)
				if isText && wasText && (k == "text" || k == "summary" || k == "data") {
					item[k] = old + s
				} else if v != nil {
					item[k] = v
				}
			}
			return
		}
	}
	if len(d.items) < maxDetails {
		d.items = append(d.items, p)
	}
}

// merged returns the whole, once; nil for none.
func (d *details) merged() json.RawMessage {
	if len(d.items) == 0 || d.told {
		return nil
	}
	d.told = true
	raw, err := dsh.JSON(d.items)
	if err != nil {
		return nil
	}
	return raw
}

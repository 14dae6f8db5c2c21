package cli

// Fails says which conditions of --fail-if hold for a simulation.
func Fails(r Simulated, conditions ...string) ([]string, error) {
	gates, err := parseGates(conditions)
	var failed []string
	for _, g := range gates {
		if g.fails(r) != "" {
			failed = append(failed, g.text)
		}
	}
	return failed, err
}

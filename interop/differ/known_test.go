package differ

// exemption is a difference that is wanted or does not matter. All three are regular
// expressions: the scenario's name whole, parts of the step's label and of the line.
type exemption struct {
	scenario, step, line string
	reason               string
}

// known are all exemptions.
func known() []exemption {
	return []exemption{
		{"api-versions.*", "", `^(ApiKeys|SupportedFeatures|FinalizedFeatures)`, "what is served differs: transactions, share groups and streams are not, nor is what only brokers and tokens need"},
	}
}

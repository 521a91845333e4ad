package group

import "regexp"

// regexBytesMax bounds an expression: it is compiled by the coordinator.
const regexBytesMax = 64 << 10

// pattern is a regular expression over whole names of topics, with what it matched last.
type pattern struct {
	regexp *regexp.Regexp // nil if it is none
	seen   *Topics
	found  []*Topic
}

func newPattern(text string) *pattern {
	r, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return &pattern{}
	}
	if _, err := regexp.Compile(text); err != nil { // such as one that closes our parenthesis
		return &pattern{}
	}
	return &pattern{regexp: r}
}

func (p *pattern) matches(name string) bool { return p.regexp != nil && p.regexp.MatchString(name) }

// in returns the topics that match.
func (p *pattern) in(topics *Topics) []*Topic {
	if p.seen == topics {
		return p.found
	}
	p.seen, p.found = topics, nil
	for i := range topics.sorted {
		if p.matches(topics.sorted[i].Name) {
			p.found = append(p.found, &topics.sorted[i])
		}
	}
	return p.found
}

// pattern returns an expression of a member, which was looked at when it came.
func (k *consumerGroup) pattern(text string) *pattern {
	p := k.regexes[text]
	if p == nil {
		p = newPattern(text)
		k.regexes[text] = p
	}
	return p
}

// forgetPatterns drops those that no member has any more.
func (k *consumerGroup) forgetPatterns() {
	if len(k.regexes) == 0 {
		return
	}
	used := map[string]*pattern{}
	for _, m := range k.members {
		if m.regex != nil && k.regexes[*m.regex] != nil {
			used[*m.regex] = k.regexes[*m.regex]
		}
	}
	k.regexes = used
}

package replication

import (
	"strings"
	"unicode"
)

// codeNone is the code of what went well; codeOther that of an error without a sentinel.
const (
	codeNone  uint16 = 0
	codeOther uint16 = 65535
)

// wireResult is how a request about a partition ended.
type wireResult struct {
	code   uint16
	text   string     // the error's words
	leader wireLeader // who leads as far as the asked node knows
}

// resultOf makes the result of an error, nil included.
func resultOf(err error) wireResult {
	if err == nil {
		return wireResult{}
	}
	r := wireResult{code: codeOf(err), text: err.Error()}
	if r.code == codeNone {
		r.code = codeOther
	}
	if len(r.text) > wireTextMax {
		r.text = strings.ToValidUTF8(r.text[:wireTextMax], "")
	}
	return r
}

// err is the error that node answered with.
func (r *wireResult) err(node int32) error {
	if r.code == codeNone {
		return nil
	}
	return errorOf(node, r.code, strings.Map(printableRune, r.text))
}

// printableRune keeps a peer's words from being more than one line of a log.
func printableRune(c rune) rune {
	if !unicode.IsPrint(c) {
		return '?'
	}
	return c
}

// Package lint holds the project's rules as tests; it has no code of its own.
//
// Each rule is a function from sources to findings. It runs over every file of
// the checkout, and over a few small strings that show that it can fail. A
// finding names file and line and says what to do. Exceptions stand in tables
// beside the rule, each with its reason; one that nothing needs any more is a
// finding too.
//
// The rules: who may import whom; package comments and comments of exported
// names; calls that a library must not make; package variables that change;
// words that promise something for later; length of functions and files; gofmt;
// paths of one machine; names and heads of design notes; Go code in Markdown.
package lint

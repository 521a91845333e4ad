package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parse reads all settings: a flag counts before the environment, that before the file,
// and that before the defaults.
func parse(args, environment []string) (*options, error) {
	all := settings()
	given, rest, err := parseFlags(all, args)
	if err != nil {
		return nil, err
	}
	variables := map[string]string{}
	for _, e := range environment {
		name, value, _ := strings.Cut(e, "=")
		variables[name] = value
	}
	o := defaults()
	o.File = variables["BILLET_CONFIG"]
	for _, g := range given {
		if g.setting.field == "File" {
			o.File = g.text
		}
	}
	if o.File != "" {
		if err := readFile(o, all, o.File); err != nil {
			return nil, err
		}
	}
	for i := range all {
		s := &all[i]
		if text, ok := variables[s.variable()]; ok {
			if err := setText(field(o, s.field), text); err != nil {
				return nil, fmt.Errorf("%s: %w", s.variable(), err)
			}
		}
	}
	for _, g := range given {
		if err := setText(field(o, g.setting.field), g.text); err != nil {
			return nil, fmt.Errorf("-%s: %w", g.setting.name, err)
		}
	}
	for _, arg := range rest {
		if err := setKafkaName(o, all, arg); err != nil {
			return nil, err
		}
	}
	switch {
	case o.NodeID == 0:
		return nil, errors.New("-id is 0: ids begin at 1")
	case o.Admin && o.HTTP == "":
		return nil, errors.New("-admin needs an address of -http")
	case (o.CertFile == "") != (o.KeyFile == "") || (o.CertFile == "") != (o.CAFile == ""):
		return nil, errors.New("mutual TLS between nodes needs all of -cluster-cert-file, -cluster-key-file and -cluster-ca-file")
	}
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, errors.New(inFlags(err.Error(), all))
	}
	return o, nil
}

// inFlags puts flags in the place of the library's fields.
func inFlags(text string, all []setting) string {
	byLength := slices.Clone(all)
	slices.SortFunc(byLength, func(a, b setting) int { return len(b.field) - len(a.field) })
	var pairs []string
	for _, s := range byLength {
		if strings.Contains(s.field, ".") {
			pairs = append(pairs, s.field, "-"+s.name)
		} else {
			pairs = append(pairs, ": "+s.field+" is ", ": -"+s.name+" is ")
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// flagValue is a flag that was given.
type flagValue struct {
	setting *setting
	text    string
}

// parseFlags reads the command line.
func parseFlags(all []setting, args []string) (given []flagValue, rest []string, err error) {
	flags := flag.NewFlagSet("billetd", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for i := range all {
		s := &all[i]
		take := func(text string) error {
			given = append(given, flagValue{s, text})
			return nil
		}
		if field(&options{}, s.field).Kind() == reflect.Bool {
			flags.BoolFunc(s.name, s.doc, take)
		} else {
			flags.Func(s.name, s.doc, take)
		}
	}
	err = flags.Parse(args)
	return given, flags.Args(), err
}

// readFile reads a YAML file.
func readFile(o *options, all []setting, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the file with settings: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return fmt.Errorf("%s: line %d: there must be names and values", path, doc.Content[0].Line)
	}
	err = eachKey(doc.Content[0], func(key string, value *yaml.Node) error {
		for i := range all {
			if s := &all[i]; s.name == key && s.field != "File" {
				if err := setNode(field(o, s.field), value); err != nil {
					return fmt.Errorf("line %d: %s: %w", value.Line, key, err)
				}
				return nil
			}
		}
		return fmt.Errorf("line %d: there is no setting %q", value.Line, key)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// usage lists all settings.
func usage(w io.Writer) {
	fmt.Fprint(w, "usage: billetd [FLAG...] [KAFKA.SETTING=VALUE...]\n       billetd recover-cluster FLAG...\n       billetd follow-cluster GENERATION FLAG...\n\nA node of billet. The commands are for nodes that are left, and stopped, of a cluster that has lost most of them\nfor good: docs/failures.md. Flags, with the variables that stand for them:\n\n")
	for _, s := range settings() {
		fmt.Fprintf(w, "  -%s\n\t%s\n", strings.TrimSpace(s.name+" "+s.kind), s.variable()+": "+s.doc)
	}
	fmt.Fprintf(w, "\nA flag counts before a variable, that before the file, where the names are those of the flags.\nBytes may have a unit (64KiB, 16MiB, 1GiB), times need one (500ms, 30s, 12h).\n\nSettings under Kafka's names:\n\n  %s\n",
		strings.Join(kafkaNameList(), "\n  "))
}

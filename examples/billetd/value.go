package main

import (
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// field finds a field by its path.
func field(o *options, path string) reflect.Value {
	v := reflect.ValueOf(o).Elem()
	for name := range strings.SplitSeq(path, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// setText gives a field the value that a flag or a variable says.
func setText(v reflect.Value, text string) error {
	switch v.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no time: give one such as 90s or 12h", text)
		}
		v.SetInt(int64(d))
		return nil
	case []byte:
		b, err := hex.DecodeString(text)
		if err != nil {
			return fmt.Errorf("it is not hexadecimal")
		}
		v.SetBytes(b)
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := parseNumber(text)
		if err != nil || v.OverflowInt(n) {
			return fmt.Errorf("%q is no whole number, or too large: give one such as 16, 64KiB or 1GiB", text)
		}
		v.SetInt(n)
	case reflect.Map:
		return setPairs(v, text)
	case reflect.Slice:
		return setList(v, text)
	default:
		return fmt.Errorf("a setting of type %s cannot be given", v.Type())
	}
	return nil
}

// parseNumber reads a number, which may be of KiB, MiB or GiB.
func parseNumber(text string) (int64, error) {
	number, unit := text, int64(1)
	for suffix, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = rest, size
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err == nil && (n > math.MaxInt64/unit || n < math.MinInt64/unit) {
		err = strconv.ErrRange
	}
	return n * unit, err
}

// setPairs adds what text says, name=value with commas between.
func setPairs(v reflect.Value, text string) error {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok && text != "" {
			return fmt.Errorf("%q is not name=value", pair)
		}
		if ok {
			v.SetMapIndex(reflect.ValueOf(strings.TrimSpace(name)), reflect.ValueOf(value))
		}
	}
	return nil
}

// setList takes what is between commas. What has fields is YAML.
func setList(v reflect.Value, text string) error {
	if v.Type().Elem().Kind() == reflect.Struct {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			return fmt.Errorf("it is not YAML: %w", err)
		}
		if len(doc.Content) == 0 {
			v.SetZero()
			return nil
		}
		return setNode(v, doc.Content[0])
	}
	list := reflect.MakeSlice(v.Type(), 0, 0)
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		if err := setText(e, part); err != nil {
			return err
		}
		list = reflect.Append(list, e)
	}
	v.Set(list)
	return nil
}

// setNode gives a field the value that a file says.
func setNode(v reflect.Value, n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && v.Kind() != reflect.Struct:
		text := n.Value
		if n.Tag == "!!null" {
			text = ""
		}
		return setText(v, text)
	case n.Kind == yaml.SequenceNode && v.Kind() == reflect.Slice:
		list := reflect.MakeSlice(v.Type(), 0, len(n.Content))
		for _, item := range n.Content {
			e := reflect.New(v.Type().Elem()).Elem()
			if err := setNode(e, item); err != nil {
				return err
			}
			list = reflect.Append(list, e)
		}
		v.Set(list)
		return nil
	case n.Kind == yaml.MappingNode && v.Kind() == reflect.Map:
		m := reflect.MakeMap(v.Type())
		err := eachKey(n, func(key string, value *yaml.Node) error {
			e := reflect.New(v.Type().Elem()).Elem()
			err := setNode(e, value)
			m.SetMapIndex(reflect.ValueOf(key), e)
			return err
		})
		v.Set(m)
		return err
	case n.Kind == yaml.MappingNode && v.Kind() == reflect.Struct:
		return eachKey(n, func(key string, value *yaml.Node) error {
			for i := range v.NumField() {
				if kebab(v.Type().Field(i).Name) == key {
					return setNode(v.Field(i), value)
				}
			}
			return fmt.Errorf("line %d: %q is not known", value.Line, key)
		})
	}
	return fmt.Errorf("line %d: this cannot be the value", n.Line)
}

// eachKey calls f for all pairs of a mapping, no key of which may be there twice.
func eachKey(n *yaml.Node, f func(key string, value *yaml.Node) error) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if seen[key] {
			return fmt.Errorf("line %d: %q is given twice", n.Content[i].Line, key)
		}
		seen[key] = true
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// kebab is a field's name in files: ClientCAFile is client-ca-file.
func kebab(name string) string {
	var out []rune
	letters := []rune(name)
	for i, r := range letters {
		afterLower := i > 0 && unicode.IsLower(letters[i-1])
		beforeLower := i > 0 && i+1 < len(letters) && unicode.IsLower(letters[i+1])
		if unicode.IsUpper(r) && (afterLower || beforeLower) {
			out = append(out, '-')
		}
		out = append(out, unicode.ToLower(r))
	}
	return string(out)
}

package differ

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// names has what to write for values that each broker chooses for itself.
type names struct {
	ids     map[[16]byte]string
	strings map[string]string
	numbers map[int64]string // producer ids
	epochs  map[int32]string // of a consumer group
	leader  int32            // the epoch of partitions' leaders
}

// id names a topic's id.
func (n *names) id(id [16]byte, name string) {
	if n.ids == nil {
		n.ids = map[[16]byte]string{}
	}
	for old, text := range n.ids {
		if text == "id of "+name {
			delete(n.ids, old) // of a topic that is no more
		}
	}
	if id != ([16]byte{}) {
		n.ids[id] = "id of " + name
	}
}

// text names a string such as a member's id.
func (n *names) text(value, name string) {
	if n.strings == nil {
		n.strings = map[string]string{}
	}
	if value != "" {
		n.strings[value] = name
	}
}

// producer names a producer's id.
func (n *names) producer(id int64, name string) {
	if n.numbers == nil {
		n.numbers = map[int64]string{}
	}
	n.numbers[id] = name
}

// lines returns an answer as lines of path=value in order. Arrays of structures are
// put in order first: it has no meaning in Kafka's answers.
func (n *names) lines(r kmsg.Response) []string {
	var out []string
	n.add(&out, "", reflect.ValueOf(r).Elem())
	return out
}

// free are fields of which only whether they are set can be compared.
var free = regexp.MustCompile(`(^|\.)(ErrorMessage|ErrorText|ClusterID|Documentation)$`)

// skipped are fields that depend on time, load and settings, and where brokers are.
var skipped = regexp.MustCompile(`(^|\.)(ThrottleMillis|HeartbeatIntervalMillis|Version|Port)$`)

// epoch are the epochs of consumer groups.
var epoch = regexp.MustCompile(`(^|\.)(MemberEpoch|Epoch|AssignmentEpoch)$`)

// made are ids that brokers make for members.
var made = regexp.MustCompile(`^(differ-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[A-Za-z0-9_-]{22}$`)

func (n *names) add(out *[]string, path string, v reflect.Value) {
	if skipped.MatchString(path) {
		return
	}
	put := func(text string) { *out = append(*out, strings.TrimPrefix(path, ".")+"="+text) }
	if v.Kind() == reflect.Int32 && strings.HasSuffix(path, ".LeaderEpoch") {
		put(n.leaderText(int32(v.Int())))
		return
	}
	if v.Kind() == reflect.Int32 && epoch.MatchString(path) {
		put(n.epochText(int32(v.Int())))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			put("null")
			return
		}
		n.add(out, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Type != reflect.TypeFor[kmsg.Tags]() {
				n.add(out, path+"."+f.Name, v.Field(i))
			}
		}
	case reflect.Slice:
		n.addSlice(out, path, v, put)
	case reflect.Array:
		put(n.idText([16]byte(v.Interface().([16]byte))))
	case reflect.String:
		put(n.stringText(path, v.String()))
	case reflect.Int16:
		if strings.HasSuffix(path, "ErrorCode") {
			put(codeName(int16(v.Int())))
			return
		}
		put(strconv.FormatInt(v.Int(), 10))
	case reflect.Int64:
		put(n.numberText(path, v.Int()))
	default:
		put(fmt.Sprint(v.Interface()))
	}
}

func (n *names) addSlice(out *[]string, path string, v reflect.Value, put func(string)) {
	if v.IsNil() {
		put("null")
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if strings.HasSuffix(path, ".RecordBatches") {
			*out = append(*out, n.batchLines(strings.TrimPrefix(path, "."), v.Bytes())...)
			return
		}
		put("0x" + hex.EncodeToString(v.Bytes()))
		return
	}
	if v.Len() == 0 {
		put("[]")
		return
	}
	var elements [][]string
	for i := range v.Len() {
		var lines []string
		n.add(&lines, "", v.Index(i))
		elements = append(elements, lines)
	}
	slices.SortStableFunc(elements, func(a, b []string) int { return slices.Compare(a, b) })
	for _, lines := range elements {
		key := elementKey(lines)
		for _, line := range lines {
			dot := "."
			if strings.HasPrefix(line, "=") {
				dot = ""
			}
			*out = append(*out, strings.TrimPrefix(path, ".")+"["+key+"]"+dot+line)
		}
	}
}

// elementKey is what tells an element of an array from others: its name or number, so
// that one element too many does not make all after it differ.
func elementKey(lines []string) string {
	for _, field := range []string{"Topic=", "Partition=", "NodeID=", "ResourceName=", "Name=", "Group=", "MemberID=", "Key=", "ApiKey=", "TopicID=", "Pattern="} {
		for _, line := range lines {
			if value, ok := strings.CutPrefix(line, field); ok && value != "null" {
				return value
			}
		}
	}
	return ""
}

// epochText numbers the epochs of a consumer group in the order in which they turn up:
// by how much they grow is nobody's business.
func (n *names) epochText(e int32) string {
	if e <= 0 {
		return strconv.Itoa(int(e))
	}
	if n.epochs == nil {
		n.epochs = map[int32]string{}
	}
	if _, ok := n.epochs[e]; !ok {
		n.epochs[e] = fmt.Sprintf("<epoch %d>", len(n.epochs)+1)
	}
	return n.epochs[e]
}

// leaderText is the epoch of a leader, of which all partitions of a play have the same:
// with which one a broker begins is its own affair.
func (n *names) leaderText(e int32) string {
	if e == n.leader {
		return "<leader epoch>"
	}
	return strconv.Itoa(int(e))
}

func (n *names) idText(id [16]byte) string {
	if id == ([16]byte{}) {
		return "zero"
	}
	if name, ok := n.ids[id]; ok {
		return "<" + name + ">"
	}
	return "<some id>"
}

func (n *names) stringText(path, s string) string {
	if free.MatchString(path) {
		if s == "" {
			return `""`
		}
		return "<some text>"
	}
	if name, ok := n.strings[s]; ok {
		return "<" + name + ">"
	}
	if strings.HasSuffix(path, "MemberID") && made.MatchString(s) {
		return "<some member>"
	}
	if strings.HasSuffix(path, ".Host") || strings.HasSuffix(path, ".ClientHost") {
		return "<host>"
	}
	return strconv.Quote(s)
}

// numberText writes times near now as such, and producers' ids by name.
func (n *names) numberText(path string, v int64) string {
	if strings.HasSuffix(path, "ProducerID") {
		if name, ok := n.numbers[v]; ok {
			return "<" + name + ">"
		}
	}
	if v > 1_600_000_000_000 && v < 10_000_000_000_000 {
		return "<time>"
	}
	return strconv.FormatInt(v, 10)
}

func codeName(code int16) string {
	if code == 0 {
		return "0"
	}
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return strconv.Itoa(int(code))
}

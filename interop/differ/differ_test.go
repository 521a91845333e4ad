package differ

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The addresses of the two brokers. Without them there is nothing to test.
const (
	referenceVariable = "DIFFER_REFERENCE"
	testedVariable    = "DIFFER_BROKER"
)

// scenario is a play that is done with each of the two brokers.
type scenario struct {
	name string
	play func(p *play)
}

// scenarios are all there are. Each uses topics and groups of its own.
func scenarios() []scenario {
	var all []scenario
	for _, part := range [][]scenario{
		frameScenarios(), metadataScenarios(), topicScenarios(), configScenarios(), produceScenarios(),
		idempotenceScenarios(), fetchScenarios(), sessionScenarios(), offsetScenarios(), classicScenarios(),
		commitScenarios(), groupAdminScenarios(), consumerScenarios(), clusterScenarios(), securityScenarios(),
	} {
		all = append(all, part...)
	}
	return all
}

func TestAnswers(t *testing.T) {
	reference, tested := os.Getenv(referenceVariable), os.Getenv(testedVariable)
	if reference == "" || tested == "" {
		t.Skipf("%s and %s do not name two brokers", referenceVariable, testedVariable)
	}
	shared, err := sharedVersions(reference, tested)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			plays := make([]*play, 2)
			var both sync.WaitGroup
			for i, address := range []string{reference, tested} {
				plays[i] = newPlay(s.name, address, shared)
				both.Go(func() { plays[i].do(s.play) })
			}
			both.Wait()
			compare(t, s.name, plays[0].steps, plays[1].steps)
		})
	}
}

// sharedVersions returns the versions that both brokers advertise.
func sharedVersions(addresses ...string) (map[int16][2]int16, error) {
	shared := map[int16][2]int16{}
	for i, address := range addresses {
		versions, err := askVersions(address)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			shared = versions
			continue
		}
		for key, have := range shared {
			other, ok := versions[key]
			have[0], have[1] = max(have[0], other[0]), min(have[1], other[1])
			if !ok || have[0] > have[1] {
				delete(shared, key)
				continue
			}
			shared[key] = have
		}
	}
	return shared, nil
}

func askVersions(address string) (map[int16][2]int16, error) {
	c, err := dial(address)
	if err != nil {
		return nil, err
	}
	defer c.close()
	q := kmsg.NewPtrApiVersionsRequest()
	response, err := c.ask(q, 0)
	if err != nil {
		return nil, fmt.Errorf("versions of %s: %w", address, err)
	}
	versions := map[int16][2]int16{}
	for _, k := range response.(*kmsg.ApiVersionsResponse).ApiKeys {
		versions[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return versions, nil
}

// compare reports what the brokers answered differently and is not known to.
func compare(t *testing.T, name string, want, have []step) {
	for i := range max(len(want), len(have)) {
		var w, h step
		if i < len(want) {
			w = want[i]
		}
		if i < len(have) {
			h = have[i]
		}
		if w.label != h.label && isKnown(name, w.label, h.label) {
			return
		}
		if w.label != h.label {
			t.Errorf("step %d is %q %q with the reference and %q %q with the broker", i, w.label, w.lines, h.label, h.lines)
			return
		}
		missing, extra := difference(w.lines, h.lines)
		missing, extra = unknown(name, w.label, missing), unknown(name, w.label, extra)
		if len(missing)+len(extra) == 0 {
			continue
		}
		var b strings.Builder
		for _, line := range missing {
			fmt.Fprintf(&b, "\n    Kafka: %s", line)
		}
		for _, line := range extra {
			fmt.Fprintf(&b, "\n    here:  %s", line)
		}
		t.Errorf("%s:%s", w.label, b.String())
	}
}

// difference returns the lines of each that the other lacks.
func difference(want, have []string) (missing, extra []string) {
	count := map[string]int{}
	for _, line := range have {
		count[line]++
	}
	for _, line := range want {
		if count[line] > 0 {
			count[line]--
			continue
		}
		missing = append(missing, line)
	}
	for _, line := range have {
		if count[line] > 0 {
			count[line]--
			extra = append(extra, line)
		}
	}
	return missing, extra
}

// unknown leaves out the lines that a known difference is about.
func unknown(name, label string, lines []string) []string {
	var left []string
	for _, line := range lines {
		if !isKnown(name, label, line) {
			left = append(left, line)
		}
	}
	return left
}

func isKnown(name, label, line string) bool {
	for _, k := range known() {
		if k.matches(name, label, line) {
			return true
		}
	}
	return false
}

func (k exemption) matches(name, label, line string) bool {
	return regexp.MustCompile("^(?:"+k.scenario+")$").MatchString(name) &&
		regexp.MustCompile(k.step).MatchString(label) && regexp.MustCompile(k.line).MatchString(line)
}

package differ

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// run makes names of this run differ from those of another one with the same brokers.
var run = strconv.FormatUint(uint64(rand.Uint32()), 36)

// step is a request and its answer.
type step struct {
	label string
	lines []string
}

// play is a scenario with one of the brokers.
type play struct {
	scenario string
	address  string
	shared   map[int16][2]int16
	conn     *conn
	steps    []step
	names    *names
	patience time.Duration // for answers, unless 0
}

// endOfPlay ends a play that cannot go on; what was answered until then counts.
type endOfPlay struct{}

func newPlay(scenario, address string, shared map[int16][2]int16) *play {
	return &play{scenario: scenario, address: address, shared: shared, names: &names{}}
}

// do plays. It must not fail by itself: the brokers' answers are the result.
func (p *play) do(f func(*play)) {
	defer func() {
		if p.conn != nil {
			p.conn.close()
		}
		switch r := recover(); r.(type) {
		case nil, endOfPlay:
		default:
			panic(r)
		}
	}()
	f(p)
}

// name makes a name that no other scenario has.
func (p *play) name(parts ...any) string {
	return "differ-" + run + "-" + p.scenario + fmt.Sprint(parts...)
}

// note adds a step that is no request.
func (p *play) note(label string, lines ...string) {
	p.steps = append(p.steps, step{label, lines})
}

// dial makes a new connection the play's.
func (p *play) dial() *conn {
	if p.conn != nil {
		p.conn.close()
	}
	c, err := dial(p.address)
	if err != nil {
		p.note("dial", lost(err))
		panic(endOfPlay{})
	}
	if p.patience > 0 {
		c.patience = p.patience
	}
	p.conn = c
	return c
}

// other returns a further play of the same scenario, with a connection of its own,
// whose steps join this one's by join.
func (p *play) other() *play {
	o := newPlay(p.scenario, p.address, p.shared)
	o.names = p.names
	return o
}

// has tells whether both brokers serve a version.
func (p *play) has(key kmsg.Key, version int16) bool {
	v, ok := p.shared[key.Int16()]
	return ok && version >= v[0] && version <= v[1]
}

// versions are those that both brokers serve.
func (p *play) versions(key kmsg.Key) []int16 {
	v, ok := p.shared[key.Int16()]
	if !ok {
		return nil
	}
	var all []int16
	for n := v[0]; n <= v[1]; n++ {
		all = append(all, n)
	}
	return all
}

// newest is the last version that both serve, at most most where that is not negative.
// Where there is none the play ends: the brokers have that in common.
func (p *play) newest(key kmsg.Key, most int16) int16 {
	v, ok := p.shared[key.Int16()]
	if !ok || most >= 0 && v[0] > most {
		panic(endOfPlay{})
	}
	if most >= 0 {
		return min(v[1], most)
	}
	return v[1]
}

// ask sends a request of the newest version and notes the answer under the label.
func (p *play) ask(label string, q kmsg.Request) kmsg.Response {
	return p.askVersion(label, q, p.newest(kmsg.Key(q.Key()), -1))
}

// askVersion sends a request of a version. Without an answer it returns nil.
func (p *play) askVersion(label string, q kmsg.Request, version int16) kmsg.Response {
	response, err := p.quietly(q, version)
	label = fmt.Sprintf("%s %s v%d", label, kmsg.NameForKey(q.Key()), version)
	if err != nil {
		p.note(label, lost(err))
		p.conn.close()
		p.conn = nil
		return response
	}
	p.note(label, p.names.lines(response)...)
	if os.Getenv("DIFFER_TRACE") != "" {
		fmt.Println(p.address, p.scenario, label, p.names.lines(response))
	}
	return response
}

// quietly sends a request whose answer does not count.
func (p *play) quietly(q kmsg.Request, version int16) (kmsg.Response, error) {
	if p.conn == nil {
		p.dial()
	}
	return p.conn.ask(q, version)
}

// must sends what prepares the scenario. If there is no answer the play ends.
func must[R kmsg.Response](p *play, q kmsg.Request) R {
	return mustVersion[R](p, q, p.newest(kmsg.Key(q.Key()), -1))
}

func mustVersion[R kmsg.Response](p *play, q kmsg.Request, version int16) R {
	response, err := p.quietly(q, version)
	if err != nil {
		p.note("preparing with "+kmsg.NameForKey(q.Key()), lost(err))
		panic(endOfPlay{})
	}
	return response.(R)
}

// until asks until the answer is as wanted. What is not after some seconds is noted.
func until[R kmsg.Response](p *play, what string, q func() kmsg.Request, ok func(R) bool) R {
	end := time.Now().Add(15 * time.Second)
	for {
		r := must[R](p, q())
		if ok(r) {
			return r
		}
		if time.Now().After(end) {
			p.note("waiting", "in vain for "+what)
			panic(endOfPlay{})
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// topic makes a topic and waits until it has leaders.
func (p *play) topic(name string, partitions int32, config ...string) {
	q := kmsg.NewPtrCreateTopicsRequest()
	q.TimeoutMillis = 10000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	// Records of scenarios are old.
	config = append([]string{"retention.ms", "-1"}, config...)
	for i := 0; i+1 < len(config); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = config[i], kmsg.StringPtr(config[i+1])
		t.Configs = append(t.Configs, c)
	}
	q.Topics = append(q.Topics, t)
	r := must[*kmsg.CreateTopicsResponse](p, q)
	if code := r.Topics[0].ErrorCode; code != 0 {
		p.note("preparing topic "+name, fmt.Sprint("code ", code))
		panic(endOfPlay{})
	}
	p.awaitTopic(name, int(partitions))
}

// awaitTopic waits until a topic has leaders, and gives its id a name.
func (p *play) awaitTopic(name string, partitions int) {
	r := until(p, "the topic "+name, func() kmsg.Request { return metadataOf(name) },
		func(r *kmsg.MetadataResponse) bool {
			t := r.Topics[0]
			if t.ErrorCode != 0 || len(t.Partitions) != partitions {
				return false
			}
			for _, part := range t.Partitions {
				if part.ErrorCode != 0 || part.Leader < 0 {
					return false
				}
			}
			return true
		})
	p.names.id(r.Topics[0].TopicID, name)
	p.names.leader = r.Topics[0].Partitions[0].LeaderEpoch
	// Metadata may know of a leader before it does itself.
	for n := range partitions {
		until(p, "leaders of "+name, func() kmsg.Request { return listOf(name, int32(n), -1) },
			func(r *kmsg.ListOffsetsResponse) bool { return r.Topics[0].Partitions[0].ErrorCode == 0 })
	}
}

// id is a topic's.
func (p *play) id(topic string) [16]byte {
	return must[*kmsg.MetadataResponse](p, metadataOf(topic)).Topics[0].TopicID
}

func metadataOf(names ...string) *kmsg.MetadataRequest {
	q := kmsg.NewPtrMetadataRequest()
	q.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		q.Topics = append(q.Topics, t)
	}
	return q
}

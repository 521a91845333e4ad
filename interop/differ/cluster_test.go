package differ

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func clusterScenarios() []scenario {
	return []scenario{
		{"cluster", playCluster},
		{"log-dirs", playLogDirs},
		{"reassignments", playReassignments},
	}
}

func securityScenarios() []scenario {
	return []scenario{
		{"acls", playACLs},
		{"scram-users", playScramUsers},
		{"sasl", playSASL},
	}
}

func playCluster(p *play) {
	for _, v := range p.versions(kmsg.DescribeCluster) {
		p.askVersion("plain", kmsg.NewPtrDescribeClusterRequest(), v)
		q := kmsg.NewPtrDescribeClusterRequest()
		q.IncludeClusterAuthorizedOperations = true
		p.askVersion("operations", q, v)
		if v >= 1 {
			q = kmsg.NewPtrDescribeClusterRequest()
			q.EndpointType = 9
			p.askVersion("unknown kind", q, v)
		}
	}
}

func playLogDirs(p *play) {
	p.topic(p.name(), 2)
	for _, v := range p.versions(kmsg.DescribeLogDirs) {
		ask := func(label string, topics ...kmsg.DescribeLogDirsRequestTopic) {
			q := kmsg.NewPtrDescribeLogDirsRequest()
			q.Topics = topics
			r, err := p.quietly(q, v)
			label = fmt.Sprintf("%s v%d", label, v)
			if err != nil {
				p.note(label, lost(err))
				p.dial()
				return
			}
			d := r.(*kmsg.DescribeLogDirsResponse)
			for i := range d.Dirs {
				d.Dirs[i].Dir, d.Dirs[i].TotalBytes, d.Dirs[i].UsableBytes = "dir", min(d.Dirs[i].TotalBytes, 1), min(d.Dirs[i].UsableBytes, 1)
				d.Dirs[i].Topics = slices.DeleteFunc(d.Dirs[i].Topics, func(t kmsg.DescribeLogDirsResponseDirTopic) bool { return t.Topic != p.name() })
			}
			p.note(label, p.names.lines(d)...)
		}
		topic := func(name string, partitions ...int32) kmsg.DescribeLogDirsRequestTopic {
			t := kmsg.NewDescribeLogDirsRequestTopic()
			t.Topic, t.Partitions = name, partitions
			return t
		}
		ask("all")
		ask("one", topic(p.name(), 1))
		ask("missing partition", topic(p.name(), 7))
		ask("missing topic", topic(p.name("missing"), 0))
	}
}

func playReassignments(p *play) {
	p.topic(p.name(), 2)
	for _, v := range p.versions(kmsg.ListPartitionReassignments) {
		p.askVersion("all", kmsg.NewPtrListPartitionReassignmentsRequest(), v)
		for _, name := range []string{p.name(), p.name("missing")} {
			q := kmsg.NewPtrListPartitionReassignmentsRequest()
			t := kmsg.NewListPartitionReassignmentsRequestTopic()
			t.Topic, t.Partitions = name, []int32{0, 9}
			q.Topics = append(q.Topics, t)
			p.askVersion("of "+name, q, v)
		}
	}
	for _, v := range p.versions(kmsg.AlterPartitionAssignments) {
		ask := func(label, topic string, partition int32, replicas []int32) {
			q := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			q.TimeoutMillis = 10000
			t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
			t.Topic = topic
			part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			part.Partition, part.Replicas = partition, replicas
			t.Partitions = append(t.Partitions, part)
			q.Topics = append(q.Topics, t)
			p.askVersion(label, q, v)
		}
		ask("to where it is", p.name(), 0, []int32{1})
		ask("to a stranger", p.name(), 0, []int32{7})
		ask("to nobody", p.name(), 0, []int32{})
		ask("twice", p.name(), 0, []int32{1, 1})
		ask("cancel", p.name(), 0, nil)
		ask("missing partition", p.name(), 9, []int32{1})
		ask("missing topic", p.name("missing"), 0, []int32{1})
	}
}

func playACLs(p *play) {
	for _, v := range p.versions(kmsg.DescribeACLs) {
		q := kmsg.NewPtrDescribeACLsRequest()
		q.ResourceType, q.ResourcePatternType, q.Operation, q.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		p.askVersion("describe", q, v)
		q.Operation = kmsg.ACLOperationUnknown
		p.askVersion("describe unknown", q, v)
	}
	for _, v := range p.versions(kmsg.CreateACLs) {
		q := kmsg.NewPtrCreateACLsRequest()
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceTypeTopic, p.name(), kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:a", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		q.Creations = append(q.Creations, c)
		p.askVersion("create", q, v)
	}
	for _, v := range p.versions(kmsg.DeleteACLs) {
		q := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType = kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		f.ResourceName = ptr(p.name())
		q.Filters = append(q.Filters, f)
		p.askVersion("delete", q, v)
	}
}

func playScramUsers(p *play) {
	user := p.name("user")
	describe := func(label string, users ...string) {
		q := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		for _, name := range users {
			u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
			u.Name = name
			q.Users = append(q.Users, u)
		}
		p.ask(label, q)
	}
	upsert := func(label, name string, mechanism int8, iterations int32, deleted ...string) {
		q := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		if name != "-" {
			u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
			u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = name, mechanism, iterations, []byte("salty salt"), make([]byte, 32)
			q.Upsertions = append(q.Upsertions, u)
		}
		for _, name := range deleted {
			d := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
			d.Name, d.Mechanism = name, 1
			q.Deletions = append(q.Deletions, d)
		}
		p.ask(label, q)
	}
	describe("unknown", user)
	describe("twice", user, user)
	upsert("good", user, 1, 4096)
	until(p, "the user", func() kmsg.Request {
		q := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
		u.Name = user
		q.Users = append(q.Users, u)
		return q
	}, func(r *kmsg.DescribeUserSCRAMCredentialsResponse) bool {
		return len(r.Results) == 1 && r.Results[0].ErrorCode == 0
	})
	describe("there", user)
	upsert("few iterations", user, 1, 10)
	upsert("many iterations", user, 1, 1<<30)
	upsert("unknown mechanism", user, 9, 4096)
	upsert("no name", "", 1, 4096)
	upsert("delete unknown", "-", 0, 0, p.name("nobody"))
	upsert("delete and set", user, 1, 4096, user)
	upsert("delete", "-", 0, 0, user)
	upsert("nothing", "-", 0, 0)
}

// playSASL authenticates where there is nothing to prove.
func playSASL(p *play) {
	for _, v := range p.versions(kmsg.SASLHandshake) {
		q := kmsg.NewPtrSASLHandshakeRequest()
		q.Mechanism = "PLAIN"
		p.askVersion("handshake", q, v)
	}
	for _, v := range p.versions(kmsg.SASLAuthenticate) {
		q := kmsg.NewPtrSASLAuthenticateRequest()
		q.SASLAuthBytes = []byte("\x00user\x00password")
		p.askVersion("authenticate", q, v)
	}
}

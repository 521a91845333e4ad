package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// AlterConfigs, versions 0 to 2. What a request does not name gets its default back. The
// settings of nodes are not changed.
func (c *call) alterConfigs(q *kmsg.AlterConfigsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.AlterConfigsResponse)
	r.Resources = make([]kmsg.AlterConfigsResponseResource, len(q.Resources))
	twice := repeated(q.Resources, func(s *kmsg.AlterConfigsRequestResource) configResource {
		return configResource{s.ResourceType, s.ResourceName}
	})
	each(len(q.Resources), func(i int) {
		s := &q.Resources[i]
		answer := kmsg.NewAlterConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = s.ResourceType, s.ResourceName
		var err error
		if twice[configResource{s.ResourceType, s.ResourceName}] {
			err = namedTwice()
		} else {
			err = c.alterConfig(s.ResourceType, s.ResourceName, q.ValidateOnly, func(now []ConfigEntry) (alteration, error) { return replaceConfig(s, now) })
		}
		answer.ErrorCode, answer.ErrorMessage = c.code(err)
		r.Resources[i] = answer
	})
	return r
}

// configResource is what has settings.
type configResource struct {
	kind kmsg.ConfigResourceType
	name string
}

func namedTwice() error {
	return kerr.Errorf(kerr.INVALID_REQUEST, "the resource is named more than once in the request")
}

// replaceConfig plans to replace all settings that were given.
func replaceConfig(q *kmsg.AlterConfigsRequestResource, now []ConfigEntry) (alteration, error) {
	a := alteration{set: map[string]string{}}
	for i := range q.Configs {
		s := &q.Configs[i]
		if s.Value == nil {
			return a, kerr.Errorf(kerr.INVALID_REQUEST, "%s has no value", s.Name)
		}
		if _, ok := a.set[s.Name]; ok {
			return a, kerr.Errorf(kerr.INVALID_REQUEST, "%s is given more than once", s.Name)
		}
		a.set[s.Name] = *s.Value
	}
	for i := range now {
		if _, ok := a.set[now[i].Name]; !ok && now[i].Set {
			a.unset = append(a.unset, now[i].Name)
		}
	}
	return a, nil
}

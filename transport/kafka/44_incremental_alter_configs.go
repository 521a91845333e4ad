package kafka

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// IncrementalAlterConfigs, versions 0 and 1. Settings are set or get their default back;
// values are added to lists or taken out of them. The settings of nodes are not changed.
func (c *call) incrementalAlterConfigs(q *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	r.Resources = make([]kmsg.IncrementalAlterConfigsResponseResource, len(q.Resources))
	twice := repeated(q.Resources, func(s *kmsg.IncrementalAlterConfigsRequestResource) configResource {
		return configResource{s.ResourceType, s.ResourceName}
	})
	each(len(q.Resources), func(i int) {
		s := &q.Resources[i]
		answer := kmsg.NewIncrementalAlterConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = s.ResourceType, s.ResourceName
		var err error
		if twice[configResource{s.ResourceType, s.ResourceName}] {
			err = namedTwice()
		} else {
			err = c.alterConfig(s.ResourceType, s.ResourceName, q.ValidateOnly, func(now []ConfigEntry) (alteration, error) { return changeConfig(s, now) })
		}
		answer.ErrorCode, answer.ErrorMessage = c.code(err)
		r.Resources[i] = answer
	})
	return r
}

// changeConfig plans to change single settings.
func changeConfig(q *kmsg.IncrementalAlterConfigsRequestResource, now []ConfigEntry) (alteration, error) {
	a := alteration{set: map[string]string{}}
	seen := map[string]bool{}
	for i := range q.Configs {
		s := &q.Configs[i]
		switch {
		case seen[s.Name]:
			return a, kerr.Errorf(kerr.INVALID_REQUEST, "%s is given more than once", s.Name)
		case s.Op < kmsg.IncrementalAlterConfigOpSet || s.Op > kmsg.IncrementalAlterConfigOpSubtract:
			return a, kerr.Errorf(kerr.INVALID_REQUEST, "operation %d on %s is not known", s.Op, s.Name)
		case s.Op == kmsg.IncrementalAlterConfigOpDelete:
			a.unset = append(a.unset, s.Name)
		case s.Value == nil:
			return a, kerr.Errorf(kerr.INVALID_REQUEST, "%s has no value", s.Name)
		case s.Op == kmsg.IncrementalAlterConfigOpSet:
			a.set[s.Name] = *s.Value
		default:
			value, err := changeList(s, now)
			if err != nil {
				return a, err
			}
			a.set[s.Name] = value
		}
		seen[s.Name] = true
	}
	return a, nil
}

// changeList is a list with values added that it has not, or without some.
func changeList(s *kmsg.IncrementalAlterConfigsRequestResourceConfig, now []ConfigEntry) (string, error) {
	i := slices.IndexFunc(now, func(e ConfigEntry) bool { return e.Name == s.Name })
	if i < 0 || now[i].Type != kmsg.ConfigTypeList {
		return "", kerr.Errorf(kerr.INVALID_CONFIG, "%s is no list: set it, or delete it", s.Name)
	}
	list := strings.FieldsFunc(now[i].Value, func(r rune) bool { return r == ',' })
	for _, v := range strings.Split(*s.Value, ",") {
		at := slices.Index(list, v)
		switch {
		case s.Op == kmsg.IncrementalAlterConfigOpAppend && at < 0:
			list = append(list, v)
		case s.Op == kmsg.IncrementalAlterConfigOpSubtract && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ","), nil
}

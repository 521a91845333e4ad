package kafka

import (
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// clientNameMax bounds what a client may call its software.
const clientNameMax = 256

// clientName is what Kafka takes for the name or version of a client's software
// (KIP-511).
var clientName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// ApiVersions, versions 0 to 4. The answer lists the table. A version that is not known
// is answered in version 0, with UNSUPPORTED_VERSION and the same list, so that clients
// can try again (KIP-511). Its response header is always version 0.
//
// Features are announced from version 3 on: group.version 1 says that the consumer group
// protocol (KIP-848) is there.
func (c *call) apiVersions(q *kmsg.ApiVersionsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.ApiVersionsResponse)
	if c.conn.session.exchange != nil {
		r.ErrorCode = kerr.ILLEGAL_SASL_STATE
		c.conn.session.deny("ApiVersions in the middle of an exchange")
		return r
	}
	if q.Version >= 3 && !(isClientName(q.ClientSoftwareName) && isClientName(q.ClientSoftwareVersion)) {
		r.ErrorCode = kerr.INVALID_REQUEST
		return r
	}
	r.ApiKeys = c.conn.server.versions()
	if q.Version >= 3 {
		feature := kmsg.NewApiVersionsResponseSupportedFeature()
		feature.Name, feature.MaxVersion = "group.version", 1
		finalized := kmsg.NewApiVersionsResponseFinalizedFeature()
		finalized.Name, finalized.MaxVersionLevel, finalized.MinVersionLevel = "group.version", 1, 1
		if q.Version >= 4 { // before, clients choke on a lowest version of 0 (KAFKA-17011)
			r.SupportedFeatures = append(r.SupportedFeatures, feature)
		}
		r.FinalizedFeatures = append(r.FinalizedFeatures, finalized)
		r.FinalizedFeaturesEpoch = 0
	}
	return r
}

func isClientName(s string) bool { return len(s) <= clientNameMax && clientName.MatchString(s) }

// versions lists the table as ApiVersions gives it.
func (s *Server) versions() []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(s.apis))
	for _, a := range s.apis {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key.Int16(), a.advertisedMin, a.max
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
	return keys
}

// unknownVersion answers in version 0 to a version that is not known.
func unknownVersion(s *Server) kmsg.Response {
	r := kmsg.NewPtrApiVersionsResponse()
	r.ErrorCode, r.ApiKeys = kerr.UNSUPPORTED_VERSION, s.versions()
	return r
}

package kafka

import "github.com/billetlog/billet/internal/kerr"

// epochEnd is the largest epoch with records that is not above the given one, and where
// it ends. An epoch before all that are known ends at the start; of one that is not there
// yet nothing is known.
func epochEnd(p Partition, at *Offsets, epoch int32) (largest int32, end int64) {
	if epoch < 0 || epoch > at.Epoch {
		return noEpoch, -1
	}
	if largest, end, ok := p.EpochEnd(epoch); ok {
		return largest, end
	}
	return epoch, at.Start
}

// noEpoch is the leader epoch of a client that does not say which one it knows.
const noEpoch = -1

// fenced refuses a client that knows of another leader than the replica (KIP-320).
func (o *Offsets) fenced(epoch int32) error {
	switch {
	case epoch < 0 || epoch == o.Epoch:
		return nil
	case epoch < o.Epoch:
		return kerr.Errorf(kerr.FENCED_LEADER_EPOCH, "the leader's epoch is %d, not %d any more", o.Epoch, epoch)
	}
	return kerr.Errorf(kerr.UNKNOWN_LEADER_EPOCH, "epoch %d is not known here: the newest is %d", epoch, o.Epoch)
}

// led refuses, besides, where the partition is not led.
func (o *Offsets) led(epoch int32) error {
	if err := o.fenced(epoch); err != nil {
		return err
	}
	if !o.Leading {
		return kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
	}
	return nil
}

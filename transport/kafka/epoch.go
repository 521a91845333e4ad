package kafka

import "github.com/billetlog/billet/internal/kerr"

// noEpoch is the leader epoch of a client that does not say which one it knows.
const noEpoch = -1

// fenced refuses a client that knows of another leader than the replica (KIP-320).
func (o *Offsets) fenced(epoch int32) error {
	switch {
	case epoch == noEpoch || epoch == o.Epoch:
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
